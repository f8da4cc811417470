"""A stream as its provider declares it, its state, and what a sweep of it would remove."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

import msgspec

from instep.model.conversion import converter

__all__ = [
    "Mode",
    "Retirement",
    "Start",
    "StreamInfo",
    "StreamState",
    "SweepEstimate",
]


class Mode(StrEnum):
    """How current state is obtained."""

    LOG = "log"
    """By reading the log alone, from its oldest record on."""
    BASELINE = "baseline"
    """By a request beside the log; the log has the changes since then."""


class Start(StrEnum):
    """Where to open a stream if not after a token."""

    OLDEST = "oldest"
    """At the oldest record that the log still has."""
    LATEST = "latest"
    """After the newest record: only records appended from now on."""


class StreamInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One log that can be followed, as discovery found it. A store keeps the last one found."""

    id: str
    """The stream's name in the store; unique in the source and stable across discoveries."""
    origin: str
    """Identifies the log: another origin is another lineage."""
    kind: str
    """The source plug-in that reads it, so that its quarantined bytes can be read again."""
    profile: str = ""
    """The edition of its specification that the stream follows, and what shows it; empty where
    there is but one.
    """
    uuid: str = ""
    """The provider's own uuid of the stream; another instance may give it another."""
    endpoint: str = ""
    """The instance of the provider that serves it, where there may be several."""
    mode: Mode = Mode.LOG
    classes: tuple[str, ...] = ()
    """The entity classes of the log, by the names in its records; empty: not declared."""
    one_class: bool = False
    """Whether all its entities are of one class, so that each key is that of one entity (A13)."""
    partial_updates: bool = False
    """Whether a record may be a partial update, to be merged into the stored entity."""
    may_start_with_snapshot: bool = True
    """Whether the log may begin with a snapshot of current state, which is made when it is opened
    (`Mode.LOG` only). Then the sweep waits until the snapshot is shown to be over; False where the
    log is known to have none.
    """
    variant: str = ""
    """How the provider keeps the log, in the provider's terms. It distinguishes two logs of the
    same classes, and is compared as a whole.
    """
    compaction_delay_s: float | None = None
    """How long a record stays in the log after a newer one of its entity; None: not declared."""
    tombstone_retention_s: float | None = None
    """How long the end of an entity stays in the log. None: not declared; inf: for ever."""
    record_retention_s: float | None = None
    """How long any record stays in the log, whether or not its entity exists; None: not
    declared.
    """
    compacts: bool = False
    """Whether a record may leave the log between its ends, since a newer one of its entity came, as
    the retentions state (BASELINE only). Elsewhere a gap between offsets is a record that was
    missed.
    """
    resumable: bool = True
    """False if each opening is a session of its own, whose tokens mean nothing in another session
    (a subscription, for example). Every opening then begins an attempt with a baseline.
    """
    latest_refused: bool = False
    """Whether the provider has refused to open it at `Start.LATEST`: attempts open at the oldest
    record.
    """
    states_series: bool = False
    """Whether its records are no state alone, but what was measured or has happened, too: a
    baseline does not show what the log has of these, so attempts open at the oldest record.
    """
    readable: frozenset[str] = frozenset()
    """Classes whose entities exist only if `Source.baseline` or the log shows them (BASELINE only):
    those that it can read, and those that are left out of the stream.
    """
    absence_stated: frozenset[str] = frozenset()
    """Of the `readable` classes those of which a baseline without any entity is a statement (A19):
    the answer is known to be whole, or the consumer does not keep them.
    """
    unprovable: frozenset[str] = frozenset()
    """Classes of which neither the log nor the baseline shows every entity (BASELINE only): of
    these, what the log has forgotten is not known.
    """
    shown: frozenset[str] = frozenset()
    """Classes of which `Source.look_up` shows single entities."""
    contained: frozenset[str] = frozenset()
    """Members, without prefix, that hold entities with records of their own (BASELINE only). A
    baseline states identifiers there, a record may state more or nothing: two statements that
    differ only there are alike.
    """
    keys_are_uuids: bool = False
    """Whether the key of each record and of each row of a baseline is its uuid (BASELINE only):
    then no row has another key than its record, and none is looked for.
    """
    event_classes: frozenset[str] = frozenset()
    """Classes of which each statement with another envelope (its event time, for example) is a
    change, also with an equal body: an alarm that is raised again.
    """
    not_offered_since_us: int = 0
    """Since when the provider does not offer the stream any more, in microseconds since 1970; 0
    where it does. Only a store says so, of what it keeps (A20).
    """
    clock_offset_us: int = 0
    """The provider's clock minus ours, as seen at discovery; 0 where unknown."""
    details: dict[str, Any] = {}
    """Further data of the source (addresses and so on), as plain data; no secrets."""

    @classmethod
    def from_stored(cls, stored: Mapping[str, Any]) -> StreamInfo:
        """The stream that a store has kept as plain data. Raises `msgspec.ValidationError` where it
        is none.
        """
        return _info(stored)


_info: Final = converter(StreamInfo)


class SweepEstimate(msgspec.Struct, frozen=True):
    """Entities of a stream before a sweep (A6)."""

    total: int
    unmarked: int
    """Not marked by the attempt: what the sweep would remove."""
    by_class: dict[str, tuple[int, int]] = {}
    """The same two numbers of each class. A store of streams with a baseline states them (A19)."""
    accepted: frozenset[str] = frozenset()
    """Digests of unreadable records that an operator has accepted: they hold nothing (A17)."""


class Retirement(msgspec.Struct, frozen=True):
    """What was removed of a stream, as counts of entities."""

    removed: int
    left: int = 0
    """Entities without a proof. The stream is retired where there are none."""


class StreamState(StrEnum):
    """The state of a stream at the provider. It explains why a stream is silent."""

    ALIGNING = "aligning"
    """The provider fills it: no records until it is active."""
    ACTIVE = "active"
    """It works: a silence means that nothing has changed."""
    PAUSED = "paused"
    """It is paused: a silence proves nothing about the end of the log."""
    TERMINATED = "terminated"
    """It has ended: discover again."""
    UNKNOWN = "unknown"
    """The provider does not state it: a silence alone proves less (A5)."""
