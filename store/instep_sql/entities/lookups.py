"""Requests for single entities: what is stored, and what was proven (A12, A17)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, Row, text

from instep.model.batches import Batch
from instep.model.entities import StoredEntity
from instep.model.holds import UnprovenReason
from instep.model.lookups import EntityProof
from instep.model.records import Record, RecordType
from instep.ports.lookups import RowKey
from instep_sql.engine.database import Database
from instep_sql.engine.dialect import Dialect, json_array
from instep_sql.entities import change_only, streams, unproven
from instep_sql.entities.key_reconciliation import mark_proven
from instep_sql.entities.streams import StreamTransaction
from instep_sql.proof_sql import PROOF_COLUMNS, PROOF_JOIN, SCOPE_COVERS
from instep_sql.stored_entities import stored_entity, stored_record

__all__ = ["SqlEntityRows", "apply_proofs"]

_ASKED: Final = ", ".join(
    f"'{one.value}'"
    for one in (UnprovenReason.UNREADABLE_RECORD, UnprovenReason.UNREADABLE_ELEMENT)
)
_MAY_BE_ABOUT: Final = f"""
    EXISTS (SELECT 1 FROM instep_unproven AS u
            WHERE u.stream_no = t.stream_no AND u.reason IN ({_ASKED})
              AND (u.key = t.key AND t.proven = 0 OR {SCOPE_COVERS}))
"""
"""Whether something unreadable may be about the entity `t` (A17)."""
_ENTITY: Final = text(f"""
    SELECT t.*, s.consumer, s.stream, {PROOF_COLUMNS}
    FROM instep_entity AS t JOIN instep_stream AS s ON s.id = t.stream_no {PROOF_JOIN}
    WHERE t.stream_no = :no AND t.key = :key
""")


class SqlEntityRows:
    """Implements `instep.ports.lookups.EntityRows`."""

    def __init__(self, database: Database, dialect: Dialect, consumer: str, stream: str) -> None:
        self._database, self._dialect = database, dialect
        self._consumer, self._stream = consumer, stream
        self._no: int | None = None

    async def page(
        self, classes: Collection[str], after: int, limit: int, *, unproven: bool = False
    ) -> Sequence[RowKey]:
        """See `EntityRows`."""
        only = f"AND {_MAY_BE_ABOUT}" if unproven else ""
        query = text(f"""
            SELECT t.id, t.key FROM instep_entity AS t
            WHERE t.stream_no = :no AND t.id > :after
              AND t.class IN {self._dialect.members("classes")} {only}
            ORDER BY t.id LIMIT :size
        """)

        def work(connection: Connection) -> list[RowKey]:
            values = {"after": after, "size": limit, **self._values(connection, classes)}
            return [RowKey(*row) for row in connection.execute(query, values)]

        return await self._database.run(work)

    async def count(self, classes: Collection[str] | None) -> int:
        """See `EntityRows`."""
        only = f"AND class IN {self._dialect.members('classes')}" if classes is not None else ""
        query = text(f"SELECT count(*) FROM instep_entity WHERE stream_no = :no {only}")

        def work(connection: Connection) -> int:
            values: dict[str, object] = {"no": self._stream_no(connection)}
            if classes is not None:
                values = self._values(connection, classes)
            return int(connection.execute(query, values).scalar_one())

        return await self._database.run(work)

    async def entity(self, key: str) -> StoredEntity | None:
        """See `EntityRows`."""

        def work(connection: Connection) -> StoredEntity | None:
            named = {"no": self._stream_no(connection), "key": key}
            row = connection.execute(_ENTITY, named).one_or_none()
            return None if row is None else stored_entity(row)

        return await self._database.run(work)

    def _values(self, connection: Connection, classes: Collection[str]) -> dict[str, object]:
        return {"no": self._stream_no(connection), "classes": json_array(sorted(classes))}

    def _stream_no(self, connection: Connection) -> int:
        if self._no is None:
            row = streams.find(connection, self._consumer, self._stream)
            self._no = None if row is None else row.no
        return -1 if self._no is None else self._no


_COMPARED: Final = """
    SELECT t.*, s.stream, {proof}
    FROM instep_entity AS t JOIN instep_stream AS s ON s.id = t.stream_no {join}
    WHERE t.stream_no = :no AND t.key IN {members}
"""
_DISOWN: Final = text("UPDATE instep_entity SET lineage = 0 WHERE id = :id")


def apply_proofs(
    tx: StreamTransaction, batch: Batch, write: Callable[[Sequence[Record]], object]
) -> int:
    """What requests for single entities have proven (A17): a row that the stream has changed since
    stays as it is. `write` writes records by rule A3. Returns how many entities less are unproven.
    """
    connection, dialect, stream = tx.connection, tx.dialect, tx.stream
    proofs = {one.key: one for one in batch.proofs}
    query = _COMPARED.format(proof=PROOF_COLUMNS, join=PROOF_JOIN, members=dialect.members("keys"))
    values = {"no": stream.no, "keys": json_array(proofs)}
    rows = [
        row
        for row in connection.execute(text(query), values).all()
        if row.token == proofs[row.key].token
    ]
    if not rows:
        return 0
    keys = [row.key for row in rows]
    before = unproven.count_among(tx, keys)
    changed = [row for row in rows if not proofs[row.key].exists or proofs[row.key].body]
    if changed:
        # What is proven leaves its lineage, so rule A3 finds nothing to compare with.
        connection.execute(_DISOWN, [{"id": row.id} for row in changed])
        if stream.change_only:
            change_only.forget_parts(connection, dialect, stream.no, [row.key for row in changed])
        write([_record(row, proofs[row.key]) for row in changed])
    standing = [row.key for row in rows if proofs[row.key].exists]
    mark_proven(tx, batch.position.attempt, standing)
    singled_out = [row for row in rows if row.unproven_reason]
    proven = [row for row in singled_out if proofs[row.key].exists]
    unproven.prove_singly(tx, rows, proven)
    return before - unproven.count_among(tx, keys)


def _record(row: Row[Any], proof: EntityProof) -> Record:
    """The statement that makes the row what was proven, at the row's own place in the log."""
    stored = stored_record(row)
    if proof.exists:
        return msgspec.structs.replace(stored, body=proof.body)
    return Record(
        stored.stream,
        stored.key,
        RecordType.DELETE,
        stored.token,
        stored.appended_at_us,
        stored.partition,
        stored.offset,
        stored.entity_class,
        uuid=stored.uuid,
    )
