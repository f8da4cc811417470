"""The marks of an audit, and their comparison with what is stored, set by set (TR-548 ST-2.3).

The marks stand in a table of their own, which is made when it is first needed and holds nothing
when no audit goes on. `instep.audit` says why what is called proven here is proven.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    text,
)
from sqlalchemy import Text as Words

from instep.audit import Counts, Finding, Verdict
from instep.fold import fold
from instep.position import Position
from instep.records import Kind, Record
from instep_sql import streams, writer
from instep_sql.database import Database
from instep_sql.dialect import Dialect
from instep_sql.options import SqlOptions
from instep_sql.stored import as_json

__all__ = ["SqlAuditMarks"]

_PAGE_RECORDS: Final = 1_000
_ABANDONED_US: Final = 7 * 86_400 * 1_000_000

_TABLE: Final = Table(
    "instep_audit",
    MetaData(),
    Column("audit", BigInteger, primary_key=True),
    Column("key", Words, primary_key=True),
    Column("stream_no", Integer, nullable=False),
    Column("class", Words, nullable=False),
    Column("token", Words, nullable=False),
    Column("partition", Words, nullable=False),
    Column("offset", BigInteger, nullable=False),
    Column("appended_at_us", BigInteger, nullable=False),
    Column("uuid", Words, nullable=False),
    Column("ends", Integer, nullable=False),
    # 0 open, 1 as stored, 2 suspect, 3 proven wrong, 4 repaired
    Column("state", Integer, nullable=False),
    Column("verdict", Words, nullable=False),
    Column("seen", Words, nullable=False),
    Column("envelope", LargeBinary, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Index("instep_audit_state", "audit", "state"),
)

_MARK: Final = """
INSERT INTO instep_audit (audit, key, stream_no, class, token, partition, "offset", appended_at_us,
                          uuid, ends, state, verdict, seen, envelope, body)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, '', '', ?, ?)
ON CONFLICT (audit, key) DO UPDATE SET
  class = excluded.class, token = excluded.token, partition = excluded.partition,
  "offset" = excluded."offset", appended_at_us = excluded.appended_at_us, uuid = excluded.uuid,
  ends = excluded.ends, state = 0, verdict = '', seen = '',
  envelope = excluded.envelope, body = excluded.body
WHERE CASE
  WHEN instep_audit."offset" >= 0 AND excluded."offset" >= 0
       AND instep_audit.partition = excluded.partition
  THEN instep_audit."offset" <= excluded."offset"
  ELSE instep_audit.appended_at_us <= excluded.appended_at_us END
"""
_ENTITY: Final = "FROM instep_entity e WHERE e.stream_no = :no AND e.key = instep_audit.key"
_SAME: Final = "e.class = instep_audit.class AND e.body = instep_audit.body"
# The bodies of what is right are not needed any more: the table stays small.
_AGREE: Final = f"""
UPDATE instep_audit SET state = 1, envelope = :nothing, body = :nothing
WHERE audit = :audit AND state = 0 AND (ends = 0 AND EXISTS (SELECT 1 {_ENTITY} AND {_SAME})
                                        OR ends = 1 AND NOT EXISTS (SELECT 1 {_ENTITY}))
"""  # noqa: S608 — constants only
_SUSPECT: Final = text(f"""
UPDATE instep_audit SET
  state = 2, seen = coalesce((SELECT e.token {_ENTITY}), ''),
  verdict = CASE WHEN ends = 1 THEN 'bogus'
                 WHEN EXISTS (SELECT 1 {_ENTITY}) THEN 'stale' ELSE 'missing' END
WHERE audit = :audit AND state = 0 AND partition = :partition
  AND CASE WHEN "offset" >= 0 THEN "offset" <= :offset ELSE appended_at_us <= :appended_at_us END
""")  # noqa: S608 — constants only
_UNMARKED: Final = text("""
INSERT INTO instep_audit (audit, key, stream_no, class, token, partition, "offset", appended_at_us,
                          uuid, ends, state, verdict, seen, envelope, body)
SELECT :audit, e.key, e.stream_no, e.class, e.token, '', -1, 0, e.uuid, 1, 2, 'bogus', e.token,
       :nothing, :nothing
FROM instep_entity e
WHERE e.stream_no = :no
  AND NOT EXISTS (SELECT 1 FROM instep_audit a WHERE a.audit = :audit AND a.key = e.key)
""")
_UNCHANGED: Final = f"""
(verdict = 'missing' AND NOT EXISTS (SELECT 1 {_ENTITY})
 OR verdict = 'bogus' AND EXISTS (SELECT 1 {_ENTITY} AND e.token = instep_audit.seen)
 OR verdict = 'stale' AND EXISTS (SELECT 1 {_ENTITY} AND e.token = instep_audit.seen
                                  AND NOT ({_SAME})))
"""
_PROVE: Final = text(f"""
UPDATE instep_audit SET state = 3
WHERE audit = :audit AND state = 2 AND (:bogus = 1 OR verdict <> 'bogus') AND {_UNCHANGED}
""")  # noqa: S608 — constants only
_FORGET: Final = text("""
DELETE FROM instep_audit WHERE audit = :audit AND state = 2 AND appended_at_us = 0
""")
_REOPEN: Final = text("""
UPDATE instep_audit SET state = 0, verdict = '', seen = '' WHERE audit = :audit AND state = 2
""")
_PROVEN: Final = text(f"""
SELECT * FROM instep_audit
WHERE audit = :audit AND state = 3 AND key > :after AND {_UNCHANGED} ORDER BY key LIMIT :size
""")  # noqa: S608 — constants only
_FINDINGS: Final = text("""
SELECT key, class, verdict, token, state FROM instep_audit
WHERE audit = :audit AND state >= 3 AND key > :after ORDER BY key LIMIT :size
""")
_COUNTS: Final = text("""
SELECT state, verdict, ends, count(*) AS many FROM instep_audit
WHERE audit = :audit GROUP BY state, verdict, ends
""")


class SqlAuditMarks:
    """Implements `instep.audit.AuditMarks` for one stream; `open` first, `close` at last."""

    def __init__(
        self,
        database: Database,
        dialect: Dialect,
        options: SqlOptions,
        consumer: str,
        stream: str,
        clock_us: Callable[[], int],
    ) -> None:
        self._database, self._dialect, self._options = database, dialect, options
        self._consumer, self._stream, self._clock_us = consumer, stream, clock_us
        self._audit = clock_us()
        self._no = 0

    async def open(self) -> None:
        """Make ready. The marks of an audit that was killed long ago are removed."""

        def work(connection: Connection) -> None:
            _TABLE.create(connection, checkfirst=True)
            abandoned = text("DELETE FROM instep_audit WHERE audit < :before_us")
            connection.execute(abandoned, {"before_us": self._audit - _ABANDONED_US})
            self._no = self._row(connection).no

        await self._database.run(work)

    async def mark(self, records: Sequence[Record]) -> None:
        """See `AuditMarks`."""
        folded = fold(records)
        rows = [
            (
                self._audit,
                r.key,
                self._no,
                r.entity_class,
                r.token,
                r.partition,
                r.offset,
                r.appended_at_us,
                r.uuid,
                int(r.ends),
                r.envelope,
                b"" if r.ends else r.body,
            )
            for r in folded.values()
        ]

        def work(connection: Connection) -> None:
            self._dialect.many(connection, _MARK, rows)
            agree = text(f"{_AGREE} AND key IN {self._dialect.members('keys')}")
            connection.execute(agree, self._values(keys=as_json(folded)))

        if rows:
            await self._database.run(work)

    async def suspect(self) -> Position:
        """See `AuditMarks`."""

        def work(connection: Connection) -> Position:
            streams.hold(connection, self._consumer, self._stream)
            position = self._row(connection).position
            connection.execute(text(_AGREE), self._values())
            for partition in position.offsets.keys() | position.appended_us.keys():
                passed = {
                    "partition": partition,
                    "offset": position.offsets.get(partition, -1),
                    "appended_at_us": position.appended_us.get(partition, 0),
                }
                connection.execute(_SUSPECT, self._values(**passed))
            connection.execute(_UNMARKED, self._values())
            return position

        return await self._database.run(work)

    async def judge(self, *, bogus: bool) -> int:
        """See `AuditMarks`."""

        def work(connection: Connection) -> int:
            streams.hold(connection, self._consumer, self._stream)
            connection.execute(_PROVE, self._values(bogus=int(bogus)))
            forgotten = connection.execute(_FORGET, self._values()).rowcount
            reopened = connection.execute(_REOPEN, self._values()).rowcount
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
        """One page, in one transaction."""
        streams.hold(connection, self._consumer, self._stream)
        row = self._row(connection)
        if row.position.attempt != position.attempt:
            return 0, ""
        found = connection.execute(_PROVEN, self._values(after=after, size=_PAGE_RECORDS)).all()
        values = self._values(keys=as_json([one.key for one in found]))
        members = self._dialect.members("keys")
        # What is proven wrong is of no log: rule 3 has nothing to compare with.
        disown = f"UPDATE instep_entity SET lineage = 0 WHERE stream_no = :no AND key IN {members}"  # noqa: S608
        connection.execute(text(disown), values)
        writer.write_records(
            connection,
            self._dialect,
            msgspec.structs.replace(self._options, journal=row.journal),
            row,
            row.position,
            [_record(self._stream, one) for one in found],
            by_uuid=False,
            now_us=self._clock_us(),
        )
        done = f"UPDATE instep_audit SET state = 4 WHERE audit = :audit AND key IN {members}"  # noqa: S608
        connection.execute(text(done), values)
        return len(found), found[-1].key if len(found) == _PAGE_RECORDS else ""

    async def counts(self) -> Counts:
        """See `AuditMarks`."""

        def work(connection: Connection) -> Counts:
            counts = dict.fromkeys(Counts.__struct_fields__, 0)
            for one in connection.execute(_COUNTS, self._values()):
                if one.state >= 3:
                    counts[one.verdict] += one.many
                    counts["repaired"] += one.many * (one.state == 4)
                elif one.state == 1:
                    counts["right"] += one.many * (1 - one.ends)
                else:
                    counts["undecided"] += one.many
            return Counts(**counts)

        return await self._database.run(work)

    async def findings(self) -> AsyncIterator[Finding]:
        """See `AuditMarks`."""
        after = ""
        while True:
            values = self._values(after=after, size=_PAGE_RECORDS)
            page = await self._database.run(
                lambda connection, values=values: connection.execute(_FINDINGS, values).all()  # type: ignore[misc]
            )
            for key, class_, verdict, token, state in page:
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
        """Remove the marks."""
        remove = text("DELETE FROM instep_audit WHERE audit = :audit")
        await self._database.run(lambda connection: connection.execute(remove, self._values()))

    def _values(self, **more: Any) -> dict[str, Any]:
        return {"audit": self._audit, "no": self._no, "nothing": b"", **more}

    def _row(self, connection: Connection) -> streams.StreamRow:
        row = streams.find(connection, self._consumer, self._stream)
        if row is None:
            name = self._consumer, self._stream
            row = streams.insert(connection, *name, "{}", self._options.journal, self._clock_us())
        return row


def _record(stream: str, row: Any) -> Record:
    class_ = row._mapping["class"]  # noqa: SLF001 — SQLAlchemy's public name for it
    return Record(
        stream,
        row.key,
        Kind.DELETE if row.ends else Kind.CREATE_UPDATE,
        row.token,
        row.appended_at_us,
        row.partition,
        row.offset,
        class_,
        row.body,
        row.envelope,
        ends=bool(row.ends),
        uuid=row.uuid,
    )
