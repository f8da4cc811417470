"""What a sink commits in one transaction, and what the commit did."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from instep.model.holds import Hold
from instep.model.lookups import EntityProof
from instep.model.position import Position
from instep.model.records import (
    DecodedRecords,
    Record,
    Unreadable,
)

__all__ = ["Batch", "CommitResult", "SweepStep"]


class SweepStep(msgspec.Struct, frozen=True):
    """One step of a sweep: remove the next entities that neither `attempt` nor a later attempt has
    marked (TR-548 ST-2.2 step 7).
    """

    attempt: int
    """Entities marked with a lower attempt are swept."""
    cursor: int = 0
    """Where the previous step stopped, a value of the sink; 0 at the start."""
    limit_records: int = 2_000
    readable: frozenset[str] | None = None
    """Classes a baseline can prove absent; entities of other classes are kept and marked unproven.
    None: all. With classes, what a baseline has stated is compared with no record from this step
    on: whatever the stream brings then beats it (A14).
    """
    holds: tuple[Hold, ...] = ()
    """What the attempt could not read: entities that one of these holds stay, unproven (A17,
    `instep.alignment.absence.is_held`).
    """


class Batch:
    """What a sink commits in one transaction, whole or not at all.

    `position` is the consumer's position once the batch is durable. The store refuses the batch if
    its own ordinal is not `expects_ordinal`: another process has committed meanwhile.

    With `content`, the records are decoded at the first access. For a large batch that takes tens
    of milliseconds, so a sink reads them in the thread in which it writes.
    """

    __slots__ = (
        "_content",
        "_decoded",
        "by_uuid",
        "expects_ordinal",
        "lineage",
        "position",
        "proofs",
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
        lineage: int | None = None,
        content: Callable[[], DecodedRecords] | None = None,
        proofs: Sequence[EntityProof] = (),
    ) -> None:
        self.stream = stream
        self.position = position
        self.expects_ordinal = expects_ordinal
        self.sweep = sweep
        self.by_uuid = by_uuid
        """Rows are joined by uuid as well as by entity-key (a stream that is aligned from a
        baseline).
        """
        self.lineage = position.lineage if lineage is None else lineage
        """The log that the records compare with (A3): that of the position; none (0) for rows of a
        baseline that any record of the stream beats (A14); or one of their own (below 0) for
        records that are applied in the order in which they came, whatever their times (A21).
        """
        self.proofs = proofs
        """What was proven of single entities (A17); only for a sink that has `entity_rows`."""
        self._content = content
        self._decoded = None if content else DecodedRecords(records, unreadable, deviations or {})

    def __repr__(self) -> str:
        size = "not decoded" if self._decoded is None else f"{len(self._decoded.records)} records"
        return f"<Batch {self.stream} {self.position.ordinal}: {size}>"

    @property
    def records(self) -> Sequence[Record]:
        """The records of the batch, in order."""
        return self.decode().records

    @property
    def unreadable(self) -> Sequence[Unreadable]:
        """What could not be read: it goes to quarantine (A11)."""
        return self.decode().unreadable

    @property
    def deviations(self) -> dict[str, int]:
        """Departures from the specification: kind → count (A10)."""
        return self.decode().deviations

    @property
    def samples(self) -> dict[str, bytes]:
        """A sample of the bytes of each kind of departure."""
        return self.decode().samples

    def decode(self) -> DecodedRecords:
        """The content of the batch, decoded at the first call."""
        if self._decoded is None:
            assert self._content is not None
            self._decoded, self._content = self._content(), None
        return self._decoded

    def replace(self, **changes: Any) -> Batch:
        """A copy of the batch with these constructor arguments changed."""
        content = self.decode()
        given: dict[str, Any] = {
            "stream": self.stream,
            "position": self.position,
            "expects_ordinal": self.expects_ordinal,
            "records": content.records,
            "unreadable": content.unreadable,
            "deviations": content.deviations,
            "sweep": self.sweep,
            "by_uuid": self.by_uuid,
            "lineage": self.lineage,
            "proofs": self.proofs,
        }
        return Batch(**given | changes)


class CommitResult(msgspec.Struct, frozen=True):
    """The result of a commit. It counts entities: of several records of one key, the last one
    counts. A sink that applies records later (a lake) counts what it has accepted, and sweeps 0.
    """

    written: int = 0
    deleted: int = 0
    swept: int = 0
    kept: int = 0
    """How many entities more are unproven: those that the step of the sweep has left, and those
    that unreadable records single out, less those that are stated again or proven singly (A17).
    """
    sweep_cursor: int = 0
    sweep_done: bool = False
    gave_way: int = 0
    """Records in quarantine that gave way to others, because it is full (A11)."""
    unresolved_keys: tuple[str, ...] = ()
    """Keys of header-only ends that met no entity in a `by_uuid` stream: the baseline is due
    again. The sink has set `baseline_pending` in the position that it stored with them.
    """
    unknown_entities: dict[str, str] = {}
    """Entity-key → uuid, or empty, of entities that a CHANGE names, and that are neither stored nor
    known to have ended. The sink has stored the position that `changes_met` gives for them.
    """
