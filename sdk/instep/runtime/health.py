"""The health of a consumer, stream by stream, and its events."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from instep.alignment.lag import Fidelity, fidelity
from instep.conformance import ConformanceReport
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
    "LakeHealth",
    "PairHealth",
    "PublisherHealth",
    "StreamHealth",
    "TableHealth",
    "check_readable",
    "margin_s",
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
    """The greatest age of a change that may be missing, now (`behind_s`). While that is not
    settled, as in an attempt: how late the last record was read.
    """
    fidelity: Fidelity
    """What that delay costs (A8)."""
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
    wrong: dict[str, int] | None = None
    """What the last audit of `ConsumerSettings.audit_share` found wrong: verdict → entities; None:
    there was none since the consumer started.
    """
    audited_age_s: float | None = None
    """How long ago that audit ended; None: there was none."""
    monitor: ProviderMonitor | None = None
    """See `StreamReport.monitor`."""
    known_at_us: int = 0
    """See `StreamReport.known_at_us`."""
    no_progress: str = ""
    """How far the last connections came, if several in a row came no further than those before;
    empty while there is progress (A16).
    """
    process_lost: bool = False
    """Whether the process that follows it has ended or hangs: nothing of this is of now."""
    heard_age_s: float | None = None
    """How long ago anything came from the provider, a Pong too, in seconds; None: never since the
    process started, or the connection cannot tell.
    """
    heard_within_s: float | None = None
    """From which age of that on a provider that we keep reading is gone; None where that is not
    known.
    """
    record_age_s: float | None = None
    """How long ago the last record came; None: none has since the process started."""
    commit_age_s: float | None = None
    """How long ago the last commit was durable; None: none was since the process started."""
    committing_s: float = 0.0
    """How long the commit under way takes already; 0: there is none."""
    behind_s: float | None = None
    """The greatest age of a change that may be missing: since then all is known (A8). None: nothing
    is known yet.
    """
    phase_age_s: float | None = None
    """For how long it is in this phase, as far as this process knows; None: not known."""

    @property
    def compaction_margin_s(self) -> float | None:
        """The time left, in seconds, until intermediate states may be lost; negative: they may be
        (TR-548 3.17). None where the log does not compact, or nothing is known yet.
        """
        return margin_s(self.compaction_delay_s, self.behind_s)

    @property
    def retention_margin_s(self) -> float | None:
        """The same until ends may be lost, and the stream has to be aligned anew."""
        return margin_s(self.tombstone_retention_s, self.behind_s)

    def delayed(self, read_delay_s: float) -> StreamHealth:
        """The same with this read delay, and what it costs (A8)."""
        zone = fidelity(read_delay_s, self.compaction_delay_s, self.tombstone_retention_s)
        return msgspec.structs.replace(self, read_delay_s=read_delay_s, fidelity=zone)

    def aged(self, by_s: float) -> StreamHealth:
        """The same, as it is known so many seconds after it was said."""
        if by_s <= 0:
            return self
        aged = self
        if self.read_delay_s == self.behind_s:
            aged = self.delayed(self.read_delay_s + by_s)
        return msgspec.structs.replace(
            aged,
            heard_age_s=_later(self.heard_age_s, by_s),
            record_age_s=_later(self.record_age_s, by_s),
            commit_age_s=_later(self.commit_age_s, by_s),
            committing_s=self.committing_s and self.committing_s + by_s,
            behind_s=_later(self.behind_s, by_s),
            phase_age_s=_later(self.phase_age_s, by_s),
            audited_age_s=_later(self.audited_age_s, by_s),
        )

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
            known_at_us=self.known_at_us,
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


def margin_s(keeps_s: float | None, behind_s: float | None) -> float | None:
    """The time left, in seconds, of what the provider keeps for so long; None: not known."""
    return None if keeps_s is None or behind_s is None else keeps_s - behind_s


def _later(age_s: float | None, by_s: float) -> float | None:
    return None if age_s is None else age_s + by_s


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
    sequences: int = 0
    """Sequences that are kept."""
    failed_sequences: int = 0
    """Sequences that have failed, and are frozen with what they hold (S13)."""
    held: int = 0
    """Messages buffered behind gaps, in all sequences together."""
    gap_age_s: float | None = None
    """For how long the oldest gap of the sequences in memory is known; None: there is none."""
    dead: int = 0
    """Messages in the dead letter."""
    dead_age_s: float | None = None
    """For how long the oldest is there; None: there is none."""


class PairHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The role of this process in a pair, and the lease."""

    role: Role
    holder: str
    """The holder of the lease as last read; empty: none."""
    epoch: int
    lease_s: float = 0.0
    """How long the lease lasts without being renewed."""


class PublisherHealth(msgspec.Struct, frozen=True, kw_only=True):
    """A publisher of the configuration. Counts are since the start."""

    published: int
    """Events that the target has taken."""


class TableHealth(msgspec.Struct, frozen=True, kw_only=True):
    """One table that is made from what has landed."""

    table: str
    behind: int
    """Ordinals of `changes` that it lacks, of all streams together, as of the last look."""
    behind_s: float
    """For how long it lacks some; 0: it lacks none."""


class LakeHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The tables that `instep lake run` makes."""

    tables: tuple[TableHealth, ...]
    looked_age_s: float | None
    """How long ago it was looked for what has landed; None: not yet."""


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
    publisher: PublisherHealth | None = None
    """None for what is no publisher."""
    lake: LakeHealth | None = None
    """None for what makes no tables of a lake."""
    loop_lag_s: float = 0.0
    """The longest time in the last minute or two by which the event loop ran something too late."""
    store_age_s: float | None = None
    """How long ago the store answered last, in seconds; None: never yet. While it works, it is
    asked every third of `stale_after_s`; of a pair that stands by, it is the lease that was read.
    """
    stale_after_s: float = 0.0
    """From which age of that on the store is away or hangs."""
    process_lost: bool = False
    """Whether the process in which it runs has ended or hangs; `error` says how."""
    conformance: ConformanceReport | None = None
    """Which rules its peer holds; None: nobody judges it."""

    def aged(self, by_s: float) -> Health:
        """The same, as it is known so many seconds after it was said."""
        if by_s <= 0:
            return self
        return msgspec.structs.replace(
            self,
            store_age_s=_later(self.store_age_s, by_s),
            streams=tuple(one.aged(by_s) for one in self.streams),
        )

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
    """One of `instep.runtime.events.EVENTS`."""
    text: str
    ids: dict[str, int] = {}
    """By what to follow it: of a stream `attempt` and `ordinal`, as they stand in the store, the
    journal and the quarantine; of a message its `number`.
    """
