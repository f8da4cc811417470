"""What is unproven, and what has proven it (A17, A19, A22): the rows of `instep_unproven` and
`instep_proof`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import Row, text

from instep.model.batches import Batch, SweepStep
from instep.model.entities import ChangeKind, ProofKind
from instep.model.holds import Hold, UnprovenReason
from instep.model.position import Phase, Position
from instep.model.records import Unreadable
from instep_sql import fencing
from instep_sql.engine.dialect import json_array
from instep_sql.entities import journal
from instep_sql.entities.held_sql import held_sql
from instep_sql.entities.streams import StreamTransaction
from instep_sql.proof_sql import SCOPE_COVERS

__all__ = [
    "count",
    "count_among",
    "follow",
    "note_held",
    "note_offered",
    "prove",
    "prove_again",
    "prove_singly",
    "recount",
    "rename",
    "settle",
    "tell_all",
]

_ANY_MARK: Final = 2**31 - 1
"""Above the mark of any attempt."""
_KEPT_PROOFS: Final = 1_000
_SCOPES: Final = text("""
    SELECT * FROM instep_unproven WHERE stream_no = :no AND key = '' ORDER BY id
""")
_INSERT: Final = text("""
    INSERT INTO instep_unproven (stream_no, key, class, partition, reason, digest, attempt,
                                 "offset", lineage, met_before, since_us, told)
    VALUES (:no, :key, :class, :partition, :reason, :digest, :attempt, :offset, :lineage,
            :met_before, :now_us, :told)
""")
_MOVE: Final = text("""
    UPDATE instep_unproven SET attempt = :attempt, "offset" = :offset, lineage = :lineage,
                               met_before = :met_before
    WHERE id = :id
""")
_EVER_TOLD: Final = text("""
    SELECT * FROM instep_unproven WHERE stream_no = :no AND told = 1 ORDER BY id
""")
_TOLD: Final = text("UPDATE instep_unproven SET told = 1 WHERE id = :id")
_FORGET: Final = text("DELETE FROM instep_unproven WHERE id = :id")
_PROVE: Final = text("""
    INSERT INTO instep_proof (stream_no, attempt, kind, at_us)
    VALUES (:no, :attempt, :kind, :now_us)
    ON CONFLICT (stream_no, attempt) DO UPDATE SET kind = excluded.kind, at_us = excluded.at_us
""")
_FORGET_PROOFS: Final = text(
    "DELETE FROM instep_proof WHERE stream_no = :no AND attempt < :attempt"
)
_STORED: Final = """
    SELECT id, key, class, proven, attempt, token, lineage, partition, "offset"
    FROM instep_entity WHERE stream_no = :no AND key IN {members}
"""
_WHOLES: Final = """
    SELECT part_key, entity_key FROM instep_part WHERE stream_no = :no AND part_key IN {members}
"""
_MARK: Final = text("""
    UPDATE instep_entity SET attempt = :attempt, proven = 0 WHERE id = :id AND attempt <= :attempt
""")
_OF_KEY: Final = text("DELETE FROM instep_unproven WHERE stream_no = :no AND key = :key")
_RENAME: Final = text("UPDATE instep_unproven SET key = :new WHERE stream_no = :no AND key = :old")
_PROVEN_AGAIN: Final = text("""
    SELECT u.id, u.key, u.class, u.partition, u.reason, u.digest, u.attempt,
           e.proven
    FROM instep_unproven AS u LEFT JOIN instep_entity AS e
      ON e.stream_no = u.stream_no AND e.key = u.key
    WHERE u.stream_no = :no AND u.key <> '' AND coalesce(e.proven, 1) <> 0
""")
_COUNT: Final = text(f"""
    SELECT count(*) FROM instep_entity AS t
    WHERE t.stream_no = :no
      AND (t.proven = 0 OR EXISTS (
          SELECT 1 FROM instep_unproven AS u
          WHERE u.reason <> '{UnprovenReason.NOT_OFFERED.value}' AND {SCOPE_COVERS}))
""")
"""A stream that is not offered is told as such."""
_ANY_SINGLE: Final = text(
    "SELECT EXISTS (SELECT 1 FROM instep_unproven WHERE stream_no = :no AND key <> '')"
)


def count(tx: StreamTransaction) -> int:
    """How many entities of a stream are unproven."""
    found = tx.connection.execute(_COUNT, {"no": tx.no}).scalar_one()
    return int(found)


def count_among(tx: StreamTransaction, keys: Collection[str]) -> int:
    """How many of the entities with these keys are unproven."""
    query = text(f"{_COUNT.text} AND t.key IN {tx.dialect.members('keys')}")
    values = {"no": tx.no, "keys": json_array(keys)}
    return int(tx.connection.execute(query, values).scalar_one())


def recount(tx: StreamTransaction) -> None:
    """Others than its consumer have written entities of the stream: its next commit takes over how
    many are unproven now. The transaction has locked the stream, and read its row since.
    """
    position = tx.stream.position
    if position.unproven:
        now = msgspec.structs.replace(position, unproven=count(tx))
        fencing.set_position(tx.connection, tx.no, now)


def note_held(
    tx: StreamTransaction, step: SweepStep, unmarked: str, values: dict[str, Any]
) -> None:
    """After a step of the sweep: keep a row of each hold that has kept something in its window
    (`unmarked`, SQL with `values`). An element that could not be read leaves its class unproven,
    whatever is stored.
    """
    scopes = _scopes(tx)
    for hold in step.holds:
        row = scopes.get(_identity_of(hold))
        if row is not None and row.attempt >= step.attempt:
            continue
        if hold.reason is not UnprovenReason.UNREADABLE_ELEMENT:
            bound = dict(values)
            held = held_sql([hold], bound)
            query = text(f"SELECT 1 FROM instep_entity WHERE {unmarked} AND {held} LIMIT 1")
            if tx.connection.execute(query, bound).first() is None:
                continue
        _keep_scope(tx, hold, step.attempt, row)


def _scopes(tx: StreamTransaction) -> dict[tuple[str, str, str | None, str], Row[Any]]:
    rows = tx.connection.execute(_SCOPES, {"no": tx.no})
    return {_identity(row): row for row in rows}


def _keep_scope(tx: StreamTransaction, hold: Hold, attempt: int, row: Row[Any] | None) -> None:
    values = _values(tx, hold, attempt)
    if row is None:
        tx.connection.execute(_INSERT, values)
        return
    moved = {name: values[name] for name in ("attempt", "offset", "lineage", "met_before")}
    tx.connection.execute(_MOVE, {**moved, "id": row.id})


def _values(tx: StreamTransaction, hold: Hold, attempt: int, key: str = "") -> dict[str, Any]:
    """The columns of a reason; with a key, of one that singles out an entity."""
    return {
        "no": tx.no,
        "key": key,
        "class": hold.entity_class,
        "partition": hold.partition,
        "reason": hold.reason.value,
        "digest": hold.digest,
        "attempt": attempt,
        "offset": hold.offset,
        "lineage": hold.lineage,
        "met_before": int(hold.met_before),
        "now_us": tx.now_us,
        # The journal says of a single entity at once that it is unproven.
        "told": int(bool(key)),
    }


def _identity(row: Row[Any]) -> tuple[str, str, str | None, str]:
    of_class: str = row._mapping["class"]  # noqa: SLF001 - SQLAlchemy's public name for it
    return row.reason, of_class, row.partition, row.digest


def _identity_of(hold: Hold) -> tuple[str, str, str | None, str]:
    return hold.reason.value, hold.entity_class, hold.partition, hold.digest


def settle(tx: StreamTransaction, step: SweepStep) -> None:
    """The sweep is over: what holds nothing any more is forgotten, and the journal says what is
    unproven from now on, and what is proven again, in one row for each stream or class (A22).
    """
    if step.readable is not None and tx.stream.unprovable:
        _note_unprovable(tx, step)
    for row in _scopes(tx).values():
        if row.attempt < step.attempt:
            tx.connection.execute(_FORGET, {"id": row.id})
            if row.told:
                _tell(tx, row, ChangeKind.PROVEN)
    held = _tell_untold(tx)
    kind = ProofKind.ATTEMPT if step.readable is None else ProofKind.BASELINE
    prove(tx, step.attempt, kind)
    oldest = step.attempt - _KEPT_PROOFS if held else step.attempt
    tx.connection.execute(_FORGET_PROOFS, {"no": tx.no, "attempt": oldest})


def _tell_untold(tx: StreamTransaction) -> bool:
    """Let the journal say what it has not said yet. Returns whether anything is unproven by a
    reason that covers more than one entity.
    """
    rows = _scopes(tx).values()
    for row in rows:
        if not row.told:
            tx.connection.execute(_TOLD, {"id": row.id})
            _tell(tx, row, ChangeKind.UNPROVEN)
    return bool(rows)


def _note_unprovable(tx: StreamTransaction, step: SweepStep) -> None:
    """A row for each class of which no resource shows the entities that the sweep has left."""
    found = tx.connection.execute(
        text(f"""
            SELECT DISTINCT class FROM instep_entity
            WHERE stream_no = :no AND proven = 0 AND class IN {tx.dialect.members("classes")}
        """),
        {"no": tx.no, "classes": json_array(tx.stream.unprovable)},
    )
    scopes = _scopes(tx)
    for entity_class in found.scalars().all():
        hold = Hold(UnprovenReason.NO_RESOURCE, entity_class)
        row = scopes.get(_identity_of(hold))
        # Its entities have this mark: the row covers none of them, it says why.
        _keep_scope(tx, hold, step.attempt, row)


def note_offered(tx: StreamTransaction, *, offered: bool) -> None:
    """Note whether the stream is offered: else all its entities are unproven (A20). The journal
    says it in one row.
    """
    hold = Hold(UnprovenReason.NOT_OFFERED)
    row = _scopes(tx).get(_identity_of(hold))
    if offered and row is not None:
        tx.connection.execute(_FORGET, {"id": row.id})
        _tell(tx, row, ChangeKind.PROVEN)
    elif not offered and row is None:
        _keep_scope(tx, hold, _ANY_MARK, None)
        _tell_untold(tx)


def prove(tx: StreamTransaction, attempt: int, kind: ProofKind) -> None:
    """Entities with the mark of this attempt were proven to exist now (A22)."""
    values = {"no": tx.no, "attempt": attempt, "kind": kind.value, "now_us": tx.now_us}
    tx.connection.execute(_PROVE, values)


def follow(tx: StreamTransaction, batch: Batch) -> int:
    """What a batch singles out, and what it proves again, after its records are written. Returns
    how many entities more are unproven.
    """
    if batch.unreadable:
        return _single_out(tx, batch)
    if batch.records:
        fewer = prove_again(tx, batch.position.attempt)
        # Once aligned, the records themselves are counted.
        return 0 if batch.position.phase is Phase.ALIGNED else -fewer
    return 0


def _single_out(tx: StreamTransaction, batch: Batch) -> int:
    """Mark the entities whose last record cannot be read, by their keys: they are not swept, and
    unproven (A17). One with a later record is as that states it.
    """
    last = {one.key: one for one in batch.unreadable if one.key is not None}
    if not last:
        return 0
    connection, stream, position = tx.connection, tx.stream, batch.position
    keys = {"no": stream.no, "keys": json_array(last)}
    members = tx.dialect.members("keys")
    if stream.change_only:
        wholes = text(_WHOLES.format(members=members))
        for row in connection.execute(wholes, keys).all():
            last.setdefault(row.entity_key, last[row.part_key])
        keys["keys"] = json_array(last)
    stored = connection.execute(text(_STORED.format(members=members)), keys).all()
    found = [row for row in stored if not _is_later(row, last[row.key], position)]
    if not found:
        return 0
    stream.singled_out = True
    reasons = [
        _values(
            tx,
            Hold(
                UnprovenReason.UNREADABLE_RECORD,
                row._mapping["class"],  # noqa: SLF001 - its public name
                last[row.key].partition,
                last[row.key].digest,
                last[row.key].offset,
                position.lineage,
            ),
            position.attempt,
            row.key,
        )
        for row in found
    ]
    aligned = position.phase is Phase.ALIGNED
    before = count_among(tx, [row.key for row in found]) if aligned else 0
    connection.execute(_MARK, [{"id": row.id, "attempt": position.attempt} for row in found])
    connection.execute(_OF_KEY, [{"no": stream.no, "key": row.key} for row in found])
    connection.execute(_INSERT, reasons)
    told = [
        _change(tx, reason, ChangeKind.UNPROVEN)
        for reason, row in zip(reasons, found, strict=True)
        if row.proven
    ]
    journal.append_notices(tx, told)
    if aligned:
        return len(found) - before
    return sum(bool(row.proven) or row.attempt < position.attempt for row in found)


def _is_later(row: Row[Any], one: Unreadable, position: Position) -> bool:
    """Whether the stored record is known to lie at or behind the one that cannot be read."""
    same_log = row.token and row.lineage == position.lineage and row.partition == one.partition
    stored: int = row._mapping["offset"]  # noqa: SLF001 - its public name
    return bool(same_log) and stored >= one.offset >= 0


def rename(tx: StreamTransaction, old: str, new: str) -> None:
    """An entity has another key: why it was singled out goes with it."""
    tx.connection.execute(_RENAME, {"no": tx.no, "old": old, "new": new})


def prove_again(tx: StreamTransaction, attempt: int) -> int:
    """Forget why entities were singled out that were stated since, or have ended. Returns how many
    of them this attempt had singled out.
    """
    connection, stream, fewer = tx.connection, tx.stream, 0
    for row in connection.execute(_PROVEN_AGAIN, {"no": stream.no}).all():
        connection.execute(_FORGET, {"id": row.id})
        fewer += row.attempt >= attempt
        if row.proven is not None:
            _tell(tx, row, ChangeKind.PROVEN)
    stream.singled_out = bool(connection.execute(_ANY_SINGLE, {"no": stream.no}).scalar_one())
    return fewer


def prove_singly(
    tx: StreamTransaction, compared: Sequence[Row[Any]], proven: Sequence[Row[Any]]
) -> None:
    """Forget why entities were singled out that a request has `compared`, and let the journal say
    of those that were unproven, and exist, that they are `proven`. The rows are of
    `instep_entity`, with the columns of their proof.
    """
    connection, stream = tx.connection, tx.stream
    connection.execute(_OF_KEY, [{"no": stream.no, "key": row.key} for row in compared])
    stream.singled_out = bool(connection.execute(_ANY_SINGLE, {"no": stream.no}).scalar_one())
    for row in proven:
        reason, _, digest = row.unproven_reason.partition(" ")
        _tell(tx, row, ChangeKind.PROVEN, reason=reason, digest=digest, partition=None)


def tell_all(tx: StreamTransaction) -> None:
    """Let a journal that begins say what is unproven: its other rows say only what there is."""
    reasons = tx.connection.execute(_EVER_TOLD, {"no": tx.no}).mappings()
    journal.append_notices(tx, [_change(tx, {**one}, ChangeKind.UNPROVEN) for one in reasons])


def _tell(tx: StreamTransaction, row: Row[Any], change: ChangeKind, **other: Any) -> None:
    values = {**row._mapping, **other}  # noqa: SLF001 - SQLAlchemy's public name for it
    journal.append_notices(tx, [_change(tx, values, change)])


def _change(tx: StreamTransaction, values: dict[str, Any], change: ChangeKind) -> dict[str, Any]:
    about = {"reason": values["reason"]}
    if values["partition"] is not None:
        about["partition"] = values["partition"]
    if values["digest"]:
        about["digest"] = values["digest"]
    return {
        "no": tx.no,
        "key": values["key"],
        "class": values["class"],
        "change": change.value,
        "now_us": tx.now_us,
        "envelope": json.dumps({"unproven": about}).encode(),
        "nothing": b"",
    }
