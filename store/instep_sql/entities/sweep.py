"""Mark and sweep in the store (TR-548 ST-2.2 step 7; A5 to A7)."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from sqlalchemy import Connection, text

from instep.model.batches import SweepStep
from instep.model.streams import SweepEstimate
from instep_sql.engine.dialect import Dialect
from instep_sql.entities import change_only, journal, tombstones
from instep_sql.entities.streams import StreamRow
from instep_sql.options import Journal

__all__ = ["SweepResult", "estimate_sweep", "sweep"]

_WINDOW: Final = text("""
    SELECT max(id) AS upto, count(*) AS size
    FROM (SELECT id FROM instep_entity WHERE id > :cursor ORDER BY id LIMIT :size) AS chunk
""")
_UNMARKED: Final = "stream_no = :no AND id > :cursor AND id <= :upto AND attempt < :attempt"
_KEEP: Final = text(f"""
    UPDATE instep_entity SET proven = 0, attempt = :attempt WHERE {_UNMARKED}
""")  # noqa: S608 — constants only
_RECOMPOSE: Final = "UPDATE instep_entity SET body = ? WHERE id = ?"
_ESTIMATE: Final = text("""
    SELECT count(*) AS total,
           coalesce(sum(CASE WHEN attempt < :attempt THEN 1 ELSE 0 END), 0) AS unmarked
    FROM instep_entity WHERE stream_no = :no
""")


class SweepResult(msgspec.Struct, frozen=True):
    """What one step did."""

    swept: int
    cursor: int
    done: bool


def sweep(
    connection: Connection,
    dialect: Dialect,
    stream: StreamRow,
    step: SweepStep,
    *,
    mode: Journal,
    now_us: int,
) -> SweepResult:
    """Remove the unmarked among the next rows of the table; all steps together pass it once.

    A step looks at `limit_records` rows of whatever stream, so its work is bounded in a shared file
    too. New rows are marked and get ids behind the cursor: they are passed, never removed.
    """
    window = connection.execute(_WINDOW, {"cursor": step.cursor, "size": step.limit_records}).one()
    values: dict[str, Any] = {
        "no": stream.no,
        "cursor": step.cursor,
        "upto": step.cursor if window.upto is None else window.upto,
        "attempt": step.attempt,
    }
    doomed = _UNMARKED
    if step.readable is not None:
        doomed += f" AND class IN {dialect.members('readable')}"
        values["readable"] = msgspec.json.encode(sorted(step.readable)).decode()
    if mode is not Journal.OFF:
        journal.append_swept(connection, doomed, values, mode, now_us)
    removal = text(f"DELETE FROM instep_entity WHERE {doomed} RETURNING key")  # noqa: S608
    keys = connection.execute(removal, values).scalars().all()
    if step.readable is not None:
        connection.execute(_KEEP, values)
    if stream.change_only:
        bodies = change_only.sweep(connection, dialect, stream.no, keys, values)
        if mode is not Journal.OFF:
            journal.append_recomposed(connection, bodies, mode, now_us)
        rows = [(body, entity) for entity, body in bodies.items()]
        dialect.execute_many(connection, _RECOMPOSE, rows)
    done = window.size < step.limit_records
    if done:
        tombstones.purge(connection, stream.no, step.attempt)
    return SweepResult(len(keys), values["upto"], done)


def estimate_sweep(connection: Connection, no: int, attempt: int) -> SweepEstimate:
    """Count the entities of a stream, and those that no attempt from `attempt` on has marked."""
    row = connection.execute(_ESTIMATE, {"no": no, "attempt": attempt}).one()
    return SweepEstimate(total=row.total, unmarked=row.unmarked)
