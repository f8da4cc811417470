"""The marks of an audit: kept in the store, and compared with the stored entities by set-based
statements (TR-548 ST-2.3).

A mark is what the log or a GET states about one entity. Marks have a table of their own, which is
empty while no audit runs. `instep.alignment.audit` explains why a finding is proven.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import Connection

from instep.alignment.audit import Counts, Finding, Verdict
from instep.model.alike import agrees
from instep.model.position import Position
from instep.model.records import Record, RecordType
from instep.model.streams import Mode, StreamInfo
from instep_sql.audit import statements
from instep_sql.audit.reading import MarksByChange, MarksByKey, MarksByUuid
from instep_sql.audit.statements import AuditStatements
from instep_sql.engine.database import Database
from instep_sql.engine.dialect import Dialect, json_array
from instep_sql.entities import change_only, commit, streams, unproven
from instep_sql.fencing import lock_stream
from instep_sql.options import SqlOptions
from instep_sql.projections.projection import Projection

__all__ = ["SqlAuditMarks"]

_PAGE_RECORDS: Final = 1_000
_ABANDONED_US: Final = 7 * 86_400 * 1_000_000
_EVERY_CLASS: Final = "[]"
_OPEN: Final = 0
_NEW: Final = 5


class SqlAuditMarks:
    """Implements `instep.ports.audit.AuditMarks` for one stream; call `open` first and `close`
    last.
    """

    def __init__(
        self,
        database: Database,
        dialect: Dialect,
        options: SqlOptions,
        consumer: str,
        stream: StreamInfo,
        clock_us: Callable[[], int],
        projections: Sequence[Projection] = (),
    ) -> None:
        self._projections = projections
        self._database, self._dialect, self._options = database, dialect, options
        self._consumer, self._stream, self._clock_us = consumer, stream.id, clock_us
        self._audit = clock_us()
        self._no = 0
        self._marked = 0
        self._measure_at = _PAGE_RECORDS
        self._by_uuid = stream.mode is Mode.BASELINE
        self._contained = stream.contained
        self._classes = json_array(stream.readable) if self._by_uuid else _EVERY_CLASS
        self._reading: MarksByKey
        """Turns the records that the audit reads into marks, once it is open."""
        self._sql = AuditStatements.of(
            dialect.members("keys"), dialect.members("classes"), by_uuid=self._by_uuid
        )

    async def open(self) -> None:
        """Prepare for marks. Removes the marks of audits that were killed long ago."""

        def work(connection: Connection) -> None:
            statements.TABLE.create(connection, checkfirst=True)
            before_us = self._audit - _ABANDONED_US
            connection.execute(statements.ABANDONED, {"before_us": before_us})
            row = self._row(connection)
            self._no = row.no
            reading = (
                MarksByUuid if self._by_uuid else MarksByChange if row.change_only else MarksByKey
            )
            self._reading = reading(self._dialect, row, self._audit)
            self._reading.open(connection, self._consumer, self._stream, row.journal, before_us)

        await self._database.run(work)

    async def position(self) -> Position:
        """See `AuditMarks`."""
        return await self._database.run(lambda connection: self._row(connection).position)

    async def mark(self, records: Sequence[Record]) -> None:
        """See `AuditMarks`."""

        def work(connection: Connection) -> None:
            marks = self._reading.marks(connection, records)
            rows = [
                (
                    self._audit,
                    key,
                    self._no,
                    r.key,
                    r.entity_class,
                    r.token,
                    r.partition,
                    r.offset,
                    r.appended_at_us,
                    r.uuid,
                    int(r.ends) if r.whole else -1,
                    r.envelope,
                    b"" if r.ends else r.body,
                )
                for key, r in marks
            ]
            self._dialect.execute_many(connection, statements.MARK, rows)
            self._measure(connection, len(rows))
            self._agree(connection, _NEW)
            connection.execute(statements.OPEN, self._values())

        if records:
            await self._database.run(work)

    def _measure(self, connection: Connection, marked: int) -> None:
        """Update the database's statistics of the mark table once it has grown, so that it does not
        keep a query plan made for a small table.
        """
        self._marked += marked
        if self._marked >= self._measure_at:
            self._measure_at = 4 * self._marked
            self._dialect.update_statistics(connection, statements.TABLE.name)

    def _agree(self, connection: Connection, state: int) -> None:
        """Settle the marks in `state` that agree with the stored entity."""
        connection.execute(self._sql.agree, self._values(state=state))
        after = ""
        # A GET spells the same state differently, and changes may be composed in another order, so
        # the bodies are compared as JSON. Most open marks agreed while they were new: few are left.
        while isinstance(self._reading, (MarksByUuid, MarksByChange)):
            values = self._values(state=state, after=after, size=_PAGE_RECORDS)
            pairs = connection.execute(self._sql.pairs, values).all()
            same = [
                one.key
                for one in pairs
                if one.stored and agrees(one.marked, one.stored, self._contained)
            ]
            right = self._values(state=state, keys=json_array(same))
            connection.execute(self._sql.right, right)
            if len(pairs) < _PAGE_RECORDS:
                return
            after = pairs[-1].key

    async def suspect(self) -> Position:
        """See `AuditMarks`."""

        def work(connection: Connection) -> Position:
            lock_stream(connection, self._consumer, self._stream)
            position = self._row(connection).position
            self._agree(connection, _OPEN)
            # At least one pass: a mark made from a GET belongs to no partition.
            for partition in {"", *position.offsets, *position.appended_us}:
                passed = {
                    "partition": partition,
                    "offset": position.offsets.get(partition, -1),
                    "appended_at_us": position.appended_us.get(partition, 0),
                }
                connection.execute(self._sql.suspect, self._values(**passed))
            connection.execute(
                self._sql.suspect_unmarked,
                self._values(classes=self._classes, all_classes=int(not self._by_uuid)),
            )
            return position

        return await self._database.run(work)

    async def judge(self, *, bogus: bool) -> int:
        """See `AuditMarks`."""

        def work(connection: Connection) -> int:
            lock_stream(connection, self._consumer, self._stream)
            missing = not self._reading.unplaced_ends
            connection.execute(
                self._sql.prove, self._values(bogus=int(bogus), missing=int(missing))
            )
            forgotten = connection.execute(statements.FORGET, self._values()).rowcount
            reopened = connection.execute(statements.REOPEN, self._values()).rowcount
            return forgotten + reopened

        return await self._database.run(work)

    async def repair(self, position: Position) -> int:
        """See `AuditMarks`."""
        repaired, after = 0, ""
        while True:
            done, after = await self._database.run(
                lambda connection, after=after: self._repair(connection, position, after)  # type: ignore[misc]
            )
            repaired += done
            if not after:
                return repaired

    def _repair(self, connection: Connection, position: Position, after: str) -> tuple[int, str]:
        """Repair one page of proven findings after `after`, in one transaction.

        Returns the key of the last finding of the page (empty: it was the last page) and the number
        of repaired entities.
        """
        lock_stream(connection, self._consumer, self._stream)
        row = self._row(connection)
        if row.position.attempt != position.attempt:
            return 0, ""
        found = connection.execute(
            self._sql.proven, self._values(after=after, size=_PAGE_RECORDS)
        ).all()
        keys = [one.key for one in found]
        values = self._values(keys=json_array(keys))
        # An entity that is proven wrong leaves its lineage, so rule A3 finds nothing to compare
        # with.
        connection.execute(self._sql.disown, values)
        if row.change_only:
            change_only.forget_parts(connection, self._dialect, row.no, [one.name for one in found])
        options = msgspec.structs.replace(self._options, journal=row.journal)
        tx = streams.StreamTransaction(
            connection, self._dialect, row.no, self._clock_us(), options, row
        )
        records = [_record(self._stream, one, row.position) for one in found]
        commit.write_records(tx, row.position, records, by_uuid=self._by_uuid)
        unproven.recount(tx)
        commit.derive_changed(tx, self._projections)
        self._reading.repaired(connection, row.position, keys)
        connection.execute(self._sql.repaired, values)
        return len(found), found[-1].key if len(found) == _PAGE_RECORDS else ""

    async def attest(self, position: Position) -> bool:
        """See `AuditMarks`."""

        def work(connection: Connection) -> bool:
            lock_stream(connection, self._consumer, self._stream)
            if self._row(connection).position.attempt != position.attempt:
                return False
            values = self._values(attempt=position.attempt)
            return bool(connection.execute(self._sql.attest, values).rowcount)

        return await self._database.run(work)

    async def counts(self) -> Counts:
        """See `AuditMarks`."""

        def work(connection: Connection) -> Counts:
            counts = dict.fromkeys(Counts.__struct_fields__, 0)
            for one in connection.execute(statements.COUNTS, self._values()):
                if one.state >= 3:
                    counts[one.verdict] += one.many
                    counts["repaired"] += one.many * (one.state == 4)
                elif one.state == 1:
                    counts["right"] += one.many * (1 - one.ends)
                else:
                    counts["undecided"] += one.many
            if self._by_uuid:
                found = connection.execute(self._sql.unproven, self._values(classes=self._classes))
                counts["unproven"] = found.scalar_one()
            return Counts(**counts)

        return await self._database.run(work)

    async def findings(self) -> AsyncIterator[Finding]:
        """See `AuditMarks`."""
        after = ""
        while True:
            values = self._values(after=after, size=_PAGE_RECORDS)
            page = await self._database.run(
                lambda connection, values=values: connection.execute(
                    statements.FINDINGS, values
                ).all()  # type: ignore[misc]
            )
            for _, key, class_, verdict, token, state in page:
                yield Finding(
                    stream=self._stream,
                    key=key,
                    entity_class=class_,
                    verdict=Verdict(verdict),
                    token=token,
                    repaired=state == 4,
                )
            if len(page) < _PAGE_RECORDS:
                return
            after = page[-1].key

    async def close(self) -> None:
        """Remove the marks of this audit."""

        def work(connection: Connection) -> None:
            connection.execute(statements.REMOVE, self._values())
            self._reading.close(connection)

        await self._database.run(work)

    def _values(self, **more: Any) -> dict[str, Any]:
        return {"audit": self._audit, "no": self._no, "nothing": b"", **more}

    def _row(self, connection: Connection) -> streams.StreamRow:
        row = streams.find(connection, self._consumer, self._stream)
        if row is None:
            name = self._consumer, self._stream
            row = streams.insert(connection, *name, "{}", self._options.journal, self._clock_us())
        return row


def _record(stream: str, row: Any, position: Position) -> Record:
    class_ = row._mapping["class"]  # noqa: SLF001 — SQLAlchemy's public name for it
    # A GET shows the state as of the position, so whatever the log states next is newer.
    at_us = row.appended_at_us if row.token else min(row.appended_at_us, position.appended_at_us)
    return Record(
        stream,
        row.name,
        RecordType.DELETE if row.ends else RecordType.CREATE_UPDATE,
        row.token,
        at_us,
        row.partition,
        row.offset,
        class_,
        row.body,
        row.envelope,
        uuid=row.uuid,
    )
