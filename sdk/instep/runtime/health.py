"""The health of a consumer, stream by stream, and its events."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from instep.alignment.lag import Fidelity
from instep.coordination.lease import Role
from instep.errors import UnreadableStreamError
from instep.model.freshness import Freshness, ProviderMonitor, StreamReport
from instep.model.position import Phase
from instep.model.streams import StreamInfo

__all__ = [
    "ConsumerEvent",
    "ConsumerState",
    "Health",
    "IntakeHealth",
    "PairHealth",
    "StreamHealth",
    "check_readable",
    "unread_stream",
    "withdrawn_stream",
]


class ConsumerState(StrEnum):
    """The state of a consumer as a whole."""

    STARTING = "starting"
    """Logging in and discovering."""
    RUNNING = "running"
    RETRYING = "retrying"
    """At least one stream has no connection and will try again."""
    STANDBY = "standby"
    """Another process of the pair is active; this one is ready to take over."""
    FAILED = "failed"
    """A fatal error; `Consumer.wait` and `Consumer.aligned` raise it."""
    STOPPED = "stopped"


class StreamHealth(msgspec.Struct, frozen=True, kw_only=True):
    """One stream of a running consumer."""

    stream: str
    phase: Phase
    attempt: int
    caught_up: bool
    """Whether everything has been read that the log held when the stream was last opened."""
    records: int
    """Records committed since the consumer started."""
    read_delay_s: float
    fidelity: Fidelity
    connected: bool
    last_error: str
    """Why the last connection ended, or why the next one fails; empty if there is no error."""
    deviations: dict[str, int]
    """Departures from the specification since the consumer started: kind → count."""
    quarantined: int
    """Records put into quarantine since the consumer started."""
    compaction_delay_s: float | None
    tombstone_retention_s: float | None
    unprovable: tuple[str, ...] = ()
    """Classes of which only what the log still held is known, aligned or not: no resource shows
    more (TRUNCATED logs of alarms, for example).
    """
    endpoint: str = ""
    """The instance of the provider that the stream is read from."""
    failed: bool = False
    """Whether an error that would be fatal for the consumer has ended the stream, while others go
    on. It is tried again after `ConsumerSettings.reconnect_late_s`.
    """
    unproven: int = 0
    """Entities that the last sweep has left unproven (A17): an aligned stream with such entities is
    ready, and says so.
    """
    attempts_without_alignment: int = 0
    """Attempts begun since the stream was last aligned (A16)."""
    unreadable: int = 0
    """Records of the attempt that could not be read, so that what they state is missing (A11)."""
    refused: int = 0
    """Records that could not be read since the stream was last opened …"""
    readable: bool = False
    """… and whether any could."""
    refusal: str = ""
    """Why nothing that the log held at the opening could be read; empty where something could."""
    opened_at_us: int = 0
    """When the stream was last opened; 0: never."""
    read_at_us: int = 0
    """When the last readable record came; 0: none has since the consumer started."""
    heard_s: float = 0.0
    """How long ago the process that follows it was heard, in seconds."""
    stale_after_s: float = 0.0
    """From which silence of that process on all of this is not of now."""
    monitor: ProviderMonitor | None = None
    """See `StreamReport.monitor`."""
    no_progress: str = ""
    """How far the last connections came, if several in a row came no further than those before;
    empty while there is progress (A16).
    """

    @property
    def report(self) -> StreamReport:
        """What is said of the stream to those who read the store."""
        return StreamReport(
            stream=self.stream,
            connected=self.connected,
            caught_up=self.caught_up,
            opened_at_us=self.opened_at_us,
            read_at_us=self.read_at_us,
            refused=self.refused,
            readable=self.readable,
            trouble=self.refusal or self.no_progress or self.last_error,
            monitor=self.monitor,
        )

    @property
    def freshness(self) -> Freshness:
        """How fresh what is known of the stream is."""
        return Freshness(
            consumer="",
            stream=self.stream,
            phase=self.phase,
            report=self.report,
            heard_s=self.heard_s,
            stale_after_s=self.stale_after_s,
            unreadable=self.unreadable,
            unproven=self.unproven,
        )


def withdrawn_stream(stream: StreamInfo) -> StreamHealth:
    """The health of a stream that is not offered any more (A20)."""
    # Nothing of what has changed since is known.
    return msgspec.structs.replace(
        unread_stream(stream), phase=Phase.NOT_OFFERED, fidelity=Fidelity.LOST
    )


def unread_stream(stream: StreamInfo) -> StreamHealth:
    """The health of a stream of which nothing is known yet."""
    return StreamHealth(
        stream=stream.id,
        phase=Phase.UNALIGNED,
        attempt=0,
        caught_up=False,
        records=0,
        read_delay_s=0.0,
        fidelity=Fidelity.FULL,
        connected=False,
        last_error="",
        deviations={},
        quarantined=0,
        compaction_delay_s=stream.compaction_delay_s,
        tombstone_retention_s=stream.tombstone_retention_s,
        endpoint=stream.endpoint,
    )


class IntakeHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The receiving of numbered messages. Counts are since the start."""

    address: str
    """Where it listens; empty while it does not."""
    accepted: int
    """Messages, each counted once."""
    duplicates: int
    refused: int
    """Messages refused by their sequence, for want of room, or by the listener."""
    commits: int
    queued: int
    """Messages that wait for their commit."""
    delivered: int
    """Messages delivered, by the handler or to the store."""
    handler_failures: int
    blocked: tuple[str, ...]
    """Sequences that are blocked by a message in quarantine; the first hundred."""
    deviations: dict[str, int]
    """Departures of the peers from their specification: kind → count."""
    refusals: dict[str, int] = {}
    """What was refused: reason → count; connections that the listener refused, too."""


class PairHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The role of this process in a pair, and the lease."""

    role: Role
    holder: str
    """The holder of the lease as last read; empty: none."""
    epoch: int


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The health of a consumer at one time."""

    consumer: str
    state: ConsumerState
    error: str
    streams: tuple[StreamHealth, ...]
    left: str = ""
    """The last failover: which instance of the provider was left, for which other, and why; empty
    if there was none.
    """
    pair: PairHealth | None = None
    """None if the sink has no lease."""
    intake: IntakeHealth | None = None
    """None for a consumer of streams."""
    loop_lag_s: float = 0.0
    """The longest time in the last minute or two by which the event loop ran something too late."""

    @property
    def aligned(self) -> bool:
        """Whether every stream that is offered is aligned, connected, and read up to the end that
        its log had at the opening. Records that could not be read may be missing
        (`StreamHealth.unreadable`).
        """
        offered = [stream for stream in self.streams if stream.phase is not Phase.NOT_OFFERED]
        return bool(offered) and all(stream.freshness.in_step for stream in offered)


def check_readable(stream: StreamHealth) -> None:
    """Raise `UnreadableStreamError` where nothing of a stream could be read."""
    if stream.refusal:
        raise UnreadableStreamError(
            stream.refusal,
            where=stream.stream,
            hint="`instep quarantine list` shows them; compare what the source is told of the"
            " provider, such as the key under `authenticity`",
        )


class ConsumerEvent(msgspec.Struct, frozen=True):
    """An event for operators, with its time."""

    at_us: int
    consumer: str
    stream: str
    """Empty for an event of the consumer as a whole."""
    kind: str
    """connected, disconnected, waiting, stream-found, stream-failed, undiscovered, failed-over,
    identifying, stream-identified, not-offered, offered-again, stream-retired, attempt,
    redelivered, confirming, continued, caught-up, aligned, unproven, unreadable, lost, sweep-held,
    no-progress, deviation, loop-lag, restarted, stopped, failed; of other processes:
    worker-started, worker-silent, worker-heard, worker-lost; of a pair: standby, active,
    superseded, gave-up; of sequences: ask-resend, realign, loss, fault, sequence-failed, not-sent,
    handler-failed, blocked, quarantined."""
    text: str
