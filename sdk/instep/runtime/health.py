"""What a consumer says of itself: its health, stream by stream, and the events worth telling."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from instep.alignment.lag import Fidelity
from instep.coordination.lease import Role
from instep.model.position import Phase

__all__ = [
    "ConsumerEvent",
    "ConsumerState",
    "Health",
    "IntakeHealth",
    "PairHealth",
    "StreamHealth",
]


class ConsumerState(StrEnum):
    """What a consumer is doing, in one word."""

    STARTING = "starting"
    """Logging in and discovering."""
    RUNNING = "running"
    RETRYING = "retrying"
    """At least one stream is without connection and waits to try again."""
    STANDBY = "standby"
    """Another process of the pair consumes; this one would take over."""
    FAILED = "failed"
    """A fatal error; `Consumer.wait` and `Consumer.aligned` raise it."""
    STOPPED = "stopped"


class StreamHealth(msgspec.Struct, frozen=True, kw_only=True):
    """One stream of a running consumer."""

    stream: str
    phase: Phase
    attempt: int
    caught_up: bool
    """Whether all that the log held when the stream was last opened has been read."""
    records: int
    """Records committed since the consumer started."""
    read_delay_s: float
    fidelity: Fidelity
    connected: bool
    last_error: str
    """Why the last connection ended, or what keeps the next from coming; empty when nothing does.
    """
    deviations: dict[str, int]
    """Seen since the consumer started: kind → count."""
    unreadable: int
    """Records put into quarantine since the consumer started."""
    compaction_delay_s: float | None
    tombstone_retention_s: float | None
    endpoint: str = ""
    """The instance of the provider that the stream is read from."""


class IntakeHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The receiving of numbered messages. Counts are since the start."""

    address: str
    """Where it listens; empty while it does not."""
    accepted: int
    """Messages, each counted once."""
    duplicates: int
    refused: int
    commits: int
    queued: int
    """Messages that wait for their commit."""
    delivered: int
    """Messages that the handler has taken; 0 without a handler."""
    handler_failures: int
    blocked: tuple[str, ...]
    """Sequences that wait for a decision about a message in quarantine; the first hundred."""
    deviations: dict[str, int]
    """Departures of the peers from their specification: kind → count."""


class PairHealth(msgspec.Struct, frozen=True, kw_only=True):
    """This process among those that could consume."""

    role: Role
    holder: str
    """Who holds the lease, as last seen; empty: nobody."""
    epoch: int


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """How a consumer is at one moment."""

    consumer: str
    state: ConsumerState
    error: str
    streams: tuple[StreamHealth, ...]
    left: str = ""
    """Which instance of the provider was left last, for which other, and why; empty when none was.
    """
    pair: PairHealth | None = None
    """None: the sink keeps no lease."""
    intake: IntakeHealth | None = None
    """None: streams are read, not messages received."""

    @property
    def aligned(self) -> bool:
        """Whether every stream is aligned, and read up to where its log stood at the opening."""
        return bool(self.streams) and all(
            stream.phase is Phase.ALIGNED and stream.caught_up for stream in self.streams
        )


class ConsumerEvent(msgspec.Struct, frozen=True):
    """Something worth telling a person, when it happened."""

    at_us: int
    consumer: str
    stream: str
    """Empty when it concerns the consumer as a whole."""
    kind: str
    """connected, disconnected, failed-over, attempt, rewound, caught-up, aligned, lost, sweep-held,
    deviation, stopped, failed; of a pair: standby, active, superseded, gave-up; of sequences:
    asked, realign, loss, fault, sequence-failed, not-sent, handler-failed, blocked, quarantined."""
    text: str
