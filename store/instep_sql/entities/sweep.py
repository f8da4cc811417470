"""Mark and sweep in the store (TR-548 ST-2.2 step 7; A5 to A7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from sqlalchemy import Connection, text

from instep.model.batches import SweepStep
from instep.model.streams import SweepEstimate
from instep_sql.engine.dialect import Dialect
from instep_sql.entities import change_only, journal, tombstones
from instep_sql.entities.journal_epochs import begin_epoch
from instep_sql.entities.streams import StreamRow
from instep_sql.entities.unmarked import UnmarkedRows
from instep_sql.options import Journal

__all__ = ["SweepResult", "estimate_sweep", "sweep"]

_WINDOW: Final = text("""
    SELECT max(id) AS upto, count(*) AS size
    FROM (SELECT id FROM instep_entity WHERE id > :cursor ORDER BY id LIMIT :size) AS chunk
""")
_BASELINE_ROWS: Final = (
    "stream_no = :no AND id > :cursor AND id <= :upto AND token = '' AND lineage > 0"
)
_RECOMPOSE: Final = "UPDATE instep_entity SET body = ? WHERE id = ?"
_ESTIMATE: Final = text("""
    SELECT count(*) AS total,
           coalesce(sum(CASE WHEN attempt < :attempt THEN 1 ELSE 0 END), 0) AS unmarked
    FROM instep_entity WHERE stream_no = :no
""")


class SweepResult(msgspec.Struct, frozen=True):
    """The result of one step: the keys of removed entities, the cursor after it, and whether the
    sweep is done.
    """

    keys: Sequence[str]
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
    """Remove the unmarked entities among the next rows of the table (A5). All steps together pass
    the table once: an interrupted sweep goes on from its cursor (A7).

    A step reads `limit_records` rows of any stream, so its work is bounded in a shared database,
    too. New rows are marked, so the sweep never removes them.
    """
    window = connection.execute(_WINDOW, {"cursor": step.cursor, "size": step.limit_records}).one()
    upto = step.cursor if window.upto is None else window.upto
    unmarked = UnmarkedRows.of(stream.no, step.attempt, cursor=step.cursor, upto=upto)
    doomed = unmarked
    if step.readable is not None:
        doomed = unmarked.of_classes(dialect, step.readable)
    if mode is not Journal.OFF:
        begin_epoch(connection, dialect, now_us)
        journal.append_swept(connection, doomed, mode, now_us)
    removal = f"DELETE FROM instep_entity WHERE {doomed.condition} RETURNING key"
    keys = connection.execute(text(removal), doomed.values).scalars().all()
    if step.readable is not None:
        # No GET shows the other classes: their unmarked entities are kept, as unproven.
        keep = f"UPDATE instep_entity SET proven = 0, attempt = :attempt WHERE {unmarked.condition}"
        connection.execute(text(keep), unmarked.values)
        # The log is read up to where it stood at the baseline: what it brings from now on is newer,
        # also where a clock is set back and dates it before the baseline (A14).
        outdated = f"UPDATE instep_entity SET lineage = 0 WHERE {_BASELINE_ROWS}"
        window_values = {"no": stream.no, "cursor": step.cursor, "upto": upto}
        connection.execute(text(outdated), window_values)
    if stream.change_only:
        bodies = change_only.sweep(connection, dialect, stream.no, keys, unmarked.values)
        if mode is not Journal.OFF:
            journal.append_recomposed(connection, bodies, mode, now_us)
        rows = [(body, entity) for entity, body in bodies.items()]
        dialect.execute_many(connection, _RECOMPOSE, rows)
    done = window.size < step.limit_records
    if done:
        tombstones.purge(connection, stream.no, step.attempt)
    return SweepResult(keys, upto, done)


def estimate_sweep(connection: Connection, no: int, attempt: int) -> SweepEstimate:
    """Count the entities of a stream, and those last marked by an attempt before `attempt`."""
    row = connection.execute(_ESTIMATE, {"no": no, "attempt": attempt}).one()
    return SweepEstimate(total=row.total, unmarked=row.unmarked)
