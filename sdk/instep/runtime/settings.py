"""The settings of a consumer, with the reasons for their defaults. They bound all that
could grow.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

from instep.alignment.settings import AlignmentSettings
from instep.model.limits import Count, Seconds

__all__ = ["ConsumerSettings", "IntakeSettings", "OnHandlerFailure"]


_Share = Annotated[int, msgspec.Meta(ge=0)]


class OnHandlerFailure(StrEnum):
    """How a sequence continues after its handler failed and the message went to quarantine."""

    BLOCK = "block"
    """Block the sequence until that message is replayed or dropped."""
    SKIP = "skip"
    """Skip that message and deliver the next ones."""


class IntakeSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How messages are received and handed to the handler."""

    group_messages: Count = 2_000
    """Most messages of one commit, which takes what was queued during the previous one."""
    queue_messages: Count = 10_000
    """Most messages queued for their commit; further ones are refused at once."""
    queue_bytes: Count = 64 * 1024 * 1024
    """Most bytes of the messages queued for their commit; further ones are refused at once."""
    answer_within_s: Seconds = 10.0
    """A message that is not durable after this time is refused, and the sender sends it again."""
    scopes_in_memory: Count = 10_000
    """Sequences kept in memory; others are read from the store when needed."""
    ticks_at_once: Count = 256
    """Most sequences whose gaps and deadlines are handled in one commit."""
    limit_sequences: Count = 1_000_000
    """Most sequences that are kept; the first message of a further one is refused."""
    limit_sequences_per_sender: Count = 100_000
    """Most sequences of one sender that are kept."""
    limit_buffered_messages: Count = 100_000
    """Most messages buffered behind gaps, in all sequences; further ones are refused."""
    limit_buffered_messages_per_sender: Count = 20_000
    """Most messages of one sender buffered behind gaps."""
    limit_buffered_bytes: Count = 1024 * 1024 * 1024
    """Most bytes of the messages buffered behind gaps, in all sequences."""
    limit_buffered_bytes_per_sender: Count = 128 * 1024 * 1024
    """Most bytes of the messages of one sender buffered behind gaps."""
    limit_dead_messages: Count = 200_000
    """Most messages in the dead letter. A message behind a gap may end there, so it takes a place
    when it is accepted. Where no place is left, its sender is refused.
    """
    limit_dead_messages_per_sender: _Share = 0
    """Most messages of one sender in the dead letter; 0: a tenth of all."""
    limit_dead_messages_per_sequence: _Share = 0
    """Most messages of one sequence in the dead letter; 0: as of one sender."""
    limit_dead_bytes: Count = 2 * 1024 * 1024 * 1024
    """Most bytes of the messages in the dead letter."""
    limit_dead_bytes_per_sender: _Share = 0
    """Most bytes of the messages of one sender in the dead letter; 0: a tenth of all."""
    limit_dead_bytes_per_sequence: _Share = 0
    """Most bytes of the messages of one sequence in the dead letter; 0: as of one sender."""
    warn_dead_after_s: Seconds = 86_400.0
    """A message that is in the dead letter for longer than this is reported once, by an event. It
    stays there.
    """
    effects_waiting: Count = 10_000
    """Most queued requests and reports to the peers; the oldest are reported and dropped."""
    effects_at_once: Count = 64
    """Most requests and reports to the peers under way at the same time."""
    effects_per_peer: Count = 2
    """Most requests and reports under way to one peer, so that a peer that does not respond delays
    no other.
    """
    effects_attempts: Count = 5
    """The number of attempts to send a report that a peer must get."""
    effects_retry_initial_s: Seconds = 1.0
    """The longest wait before the second attempt to send a report. The wait doubles with each
    failure.
    """
    effects_retry_max_s: Seconds = 60.0
    """The wait between attempts to send a report grows to this at most. A random part of each wait,
    up to half of it, is left out.
    """
    deliver_messages: Count = 200
    """Most messages passed to the handler in one transaction: receiving waits for it."""
    poll_s: Seconds = 1.0
    """How often, in seconds, the store is polled for messages that another process has released."""
    handler_timeout_s: Seconds = 10.0
    """A handler that takes longer has failed: the store's only transaction waits for it."""
    handler_attempts: Count = 5
    """The number of attempts of a handler before the message goes to quarantine."""
    handler_retry_initial_s: Seconds = 0.2
    """The longest wait before the second attempt of a handler. The wait doubles with each failure.
    """
    handler_retry_max_s: Seconds = 30.0
    """The wait between attempts of a handler grows to this at most. A random part of each wait, up
    to half of it, is left out.
    """
    on_handler_failure: OnHandlerFailure = OnHandlerFailure.BLOCK
    """BLOCK by default: delivery out of order must be chosen."""


class ConsumerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a consumer connects, retries, batches and aligns."""

    batch_records: Count = 20_000
    """Most records of one commit. Batches grow to this size under load only."""
    batch_bytes: Count = 32 * 1024 * 1024
    """Most bytes of one commit, and of what is read ahead of it."""
    poll_state_s: Seconds = 5.0
    """The interval, in seconds, at which the state of a silent stream is queried. Where it is
    aligned, and its source notices a peer that is gone, the interval grows to five minutes."""
    discover_every_s: Seconds = 60.0
    """The interval, in seconds, at which streams are looked for that have appeared meanwhile."""
    monitor_every_s: Seconds = 60.0
    """The interval, in seconds, at which the provider is asked what it says of our reading, where
    it has a stream monitor (TR-548 3.18)."""
    discover_confirm_s: Seconds = 30.0
    """How long a stream must be missing from the list before it counts as not offered any more."""
    audit_share: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 0.0
    """The share of its entities that each aligned stream has compared with the provider in an hour
    (A12); 0: none. A log is read whole over a second connection, every `1 / audit_share` hours, and
    at least twice in its tombstone retention; of a class that a GET shows, each entity is asked for
    in its turn. What is wrong is told, not repaired."""
    lookups_per_s: Annotated[float, msgspec.Meta(ge=0, le=1000)] = 10.0
    """Most requests for single entities in a second, one at a time: for those of which something
    unreadable leaves it open whether they exist (A17), and for the share above; 0: none."""
    start_order: tuple[str, ...] = ()
    """Classes in the order in which their streams start, for example `["NODE",
    "NODE_EDGE_POINT"]`: a stream waits until those of the classes before are aligned. Streams of
    other classes come last. Empty: all start at once."""
    start_wait_s: Seconds = 300.0
    """The longest time in seconds that a stream waits for those before it, such as a paused one. It
    does not wait for one that cannot connect."""
    reconnect_initial_s: Seconds = 0.5
    """The longest wait before the first new attempt to connect. The wait doubles with each failure.
    """
    reconnect_max_s: Seconds = 30.0
    """The wait between attempts to connect grows to this at most. A random part of each wait, up to
    half of it, is left out. Where several connections in a row came no further, half of this is the
    longest wait.
    """
    reconnect_late_s: Seconds = 300.0
    """Longest wait after an error that only the provider or a new configuration can end: a
    redirect, 403, a frame or answer over its limit, a certificate. It ends the consumer where
    nothing has worked before and no other stream goes on. Up to half of a wait is left off by
    chance."""
    reconnect_attempts: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Failures in a row after which the consumer gives up with the last error; 0: never."""
    healthy_after_s: Seconds = 30.0
    """A connection that lasted this long, and made progress or was aligned, resets the back-off."""
    stale_after_s: Seconds = 10.0
    """A process that was not heard for so long is not believed any more, in seconds: its streams
    are stale, whatever it said of them. It says three times as often that it lives."""
    kill_silent_after_s: Seconds = 120.0
    """A worker process that was not heard for so long hangs, in seconds: it is killed and started
    again."""
    alignment: AlignmentSettings = AlignmentSettings()
    """When an alignment may begin its sweep."""
    intake: IntakeSettings = IntakeSettings()
    """How messages of numbered sequences are received and passed to the handler."""
