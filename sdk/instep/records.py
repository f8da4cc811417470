"""What travels through instep: records in, batches out. Plain data, no behaviour beyond reading it.

Times are integers in microseconds since 1970-01-01 UTC (`_us`): they compare, add and store without
conversion. Structs are built once per record on the hot path, hence `gc=False` and positional
order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum, StrEnum
from typing import Any, cast

import msgspec

from instep.position import Position

__all__ = [
    "Batch",
    "CommitResult",
    "Delivery",
    "Kind",
    "Opened",
    "Record",
    "Statement",
    "StreamState",
    "SweepStep",
    "Unreadable",
]


class Kind(IntEnum):
    """What a record states of its entity (TR-548 3.10 `record-type`)."""

    CREATE_UPDATE = 1
    DELETE = 2
    TOMBSTONE = 3


class Statement(msgspec.Struct, frozen=True, gc=False):
    """The header of a statement about one entity, its body not looked into (TR-548 3.10).

    All that alignment decides by; a feed may give a subclass of its own that `Delivery.open` opens.
    """

    stream: str
    """The stream's id in the store."""
    key: str
    """The entity-key: opaque, unique in the stream, the same for every record of one entity."""
    kind: Kind
    token: str
    """Where to resume after this record; opaque. Empty for a row of a baseline (it has no place in
    the log).
    """
    appended_at_us: int
    """`log-append-time-stamp`; for a baseline row the time its baseline was opened."""
    partition: str = ""
    offset: int = -1
    """Place within the partition, growing, gaps allowed; -1 where the provider states none."""


class Record(Statement, frozen=True, gc=False):
    """One statement about one entity, as the provider appended it to its log (TR-548 3.10): opened.

    `body` and `envelope` are undecoded JSON: nobody pays for a parse that nobody asked for.
    """

    entity_class: str = ""
    """`record-content`, without prefix: CONDITION_DETECTOR, NODE …; empty where the record has
    none.
    """
    body: bytes = b""
    """The entity itself: the content of the class container, as stated. Empty for header-only
    records.
    """
    envelope: bytes = b""
    """The rest of the log-record-body (event time, parent address, unknown members) as one JSON
    object.
    """
    ends: bool = False
    """True when the statement ends the entity: DELETE, TOMBSTONE, or an alarm that is CLEAR
    (A4).
    """
    uuid: str = ""
    """The entity's own uuid, read only where rows must meet a baseline (the entity-key may differ
    from it).
    """
    whole: bool = True
    """False for a CHANGE_ONLY statement, which is merged into what is stored (TR-548 3.8.2.2)."""


class Unreadable(msgspec.Struct, frozen=True, gc=False):
    """A record or frame that could not be read: kept with its bytes, never dropped (A11)."""

    stream: str
    raw: bytes
    reason: str
    token: str | None = None


class Opened(msgspec.Struct, frozen=True, gc=False):
    """Statements with their bodies looked into, those that can be read."""

    records: Sequence[Record]
    unreadable: Sequence[Unreadable] = ()
    deviations: dict[str, int] = {}
    """Departures from the specification seen in the bodies: kind → count (A10)."""


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """What a feed received in one go, in order."""

    records: Sequence[Statement]
    """To be opened by `open`; where that is None, each is a `Record`."""
    unreadable: Sequence[Unreadable] = ()
    deviations: dict[str, int] = {}
    """Departures from the specification seen in these frames: kind → count (A10)."""
    size_bytes: int = 0
    open: Callable[[Sequence[Statement]], Opened] | None = None
    """Opens any of `records`, in order. Pure; bad input never raises."""
    whole: bool = True
    """False where a statement may be a change that is merged into what is stored: then none of
    them stands for the one before it.
    """

    def opened(self, records: Sequence[Statement] | None = None) -> Opened:
        """These of the records (None: all of them), opened."""
        chosen = self.records if records is None else records
        if self.open is None:
            return Opened(cast("Sequence[Record]", chosen))
        return self.open(chosen)

    def unsealed(self) -> Delivery:
        """The same with all of its records opened."""
        if self.open is None:
            return self
        opened = self.open(self.records)
        deviations = dict(self.deviations)
        for kind, times in opened.deviations.items():
            deviations[kind] = deviations.get(kind, 0) + times
        return Delivery(
            opened.records,
            [*self.unreadable, *opened.unreadable],
            deviations,
            self.size_bytes,
            whole=self.whole,
        )


class SweepStep(msgspec.Struct, frozen=True):
    """Remove the next entities that `before_attempt` and later attempts did not mark (TR-548
    ST-2.2 step 7).
    """

    attempt: int
    """Entities marked with a lower attempt are swept."""
    cursor: int = 0
    """Where the last step stopped, in the sink's own terms; 0 at the start."""
    limit_records: int = 2_000
    readable: frozenset[str] | None = None
    """Classes a baseline can prove absent; entities of other classes are kept and marked unproven.
    None: all.
    """


class Batch:
    """What a sink commits in one transaction: all of it, or nothing.

    `position` is where the consumer stands once the batch is durable; the store refuses the batch
    when its own ordinal is not `expects_ordinal` (somebody else has committed meanwhile).

    With `content`, the records are opened when they are first asked for. Of a large batch that
    takes tens of milliseconds, so a sink asks in the thread in which it writes.
    """

    __slots__ = (
        "_content",
        "_opened",
        "by_uuid",
        "expects_ordinal",
        "position",
        "stream",
        "sweep",
    )

    def __init__(  # noqa: PLR0913 - plain data
        self,
        stream: str,
        position: Position,
        expects_ordinal: int,
        records: Sequence[Record] = (),
        unreadable: Sequence[Unreadable] = (),
        deviations: dict[str, int] | None = None,
        sweep: SweepStep | None = None,
        *,
        by_uuid: bool = False,
        content: Callable[[], Opened] | None = None,
    ) -> None:
        self.stream = stream
        self.position = position
        self.expects_ordinal = expects_ordinal
        self.sweep = sweep
        self.by_uuid = by_uuid
        """Rows are joined by uuid as well as by entity-key (a stream that is aligned from a
        baseline).
        """
        self._content = content
        self._opened = None if content else Opened(records, unreadable, deviations or {})

    def __repr__(self) -> str:
        size = "sealed" if self._opened is None else f"{len(self._opened.records)} records"
        return f"<Batch {self.stream} {self.position.ordinal}: {size}>"

    @property
    def records(self) -> Sequence[Record]:
        return self.opened().records

    @property
    def unreadable(self) -> Sequence[Unreadable]:
        return self.opened().unreadable

    @property
    def deviations(self) -> dict[str, int]:
        return self.opened().deviations

    def opened(self) -> Opened:
        """What the batch states, its bodies looked into."""
        if self._opened is None:
            assert self._content is not None
            self._opened, self._content = self._content(), None
        return self._opened

    def replace(self, **changes: Any) -> Batch:
        """The same batch, but for these arguments of its making."""
        content = self.opened()
        given: dict[str, Any] = {
            "stream": self.stream,
            "position": self.position,
            "expects_ordinal": self.expects_ordinal,
            "records": content.records,
            "unreadable": content.unreadable,
            "deviations": content.deviations,
            "sweep": self.sweep,
            "by_uuid": self.by_uuid,
        }
        return Batch(**given | changes)


class CommitResult(msgspec.Struct, frozen=True):
    """What the commit did. Counts of entities, after records of one key were folded."""

    written: int = 0
    deleted: int = 0
    swept: int = 0
    sweep_cursor: int = 0
    sweep_done: bool = False
    unresolved_keys: tuple[str, ...] = ()
    """Keys of header-only ends that met no entity in a `by_uuid` stream: the baseline is due
    again. The sink has set `owes_baseline` in the position that it stored with them.
    """


class StreamState(StrEnum):
    """`stream-state` of an available stream (TR-548 3.7.2, 5.3)."""

    ALIGNING = "ALIGNING"
    ACTIVE = "ACTIVE"
    PAUSED = "PAUSED"
    TERMINATED = "TERMINATED"
    UNKNOWN = "UNKNOWN"
