"""Mark and sweep in the store (TR-548 ST-2.2 step 7; A5 to A7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, text

from instep.alignment.absence import holds_all
from instep.model.batches import SweepStep
from instep.model.streams import SweepEstimate
from instep_sql.engine.dialect import Dialect, json_array
from instep_sql.entities import change_only, journal, unproven
from instep_sql.entities.held_sql import held_sql
from instep_sql.entities.key_reconciliation import purge_tombstones
from instep_sql.entities.streams import StreamRow
from instep_sql.options import Journal

__all__ = ["SweepResult", "estimate_sweep", "sweep"]

_WINDOW: Final = """
    SELECT max(id) AS upto, count(*) AS size
    FROM (SELECT id FROM instep_entity WHERE id > :cursor ORDER BY id LIMIT :size) AS chunk
"""
_ALL_UNMARKED: Final = "stream_no = :no AND attempt < :attempt"
# With a sign the column uses no index: SQLite would read all keys of the stream at each step.
_IN_WINDOW: Final = "+stream_no = :no AND id > :cursor AND id <= :upto"
_UNMARKED: Final = f"{_IN_WINDOW} AND attempt < :attempt"
_BASELINE_ROWS: Final = f"{_IN_WINDOW} AND token = '' AND lineage > 0"
_RECOMPOSE: Final = "UPDATE instep_entity SET body = ? WHERE id = ?"
_ESTIMATE: Final = text("""
    SELECT class AS name, count(*) AS total,
           coalesce(sum(CASE WHEN attempt < :attempt THEN 1 ELSE 0 END), 0) AS unmarked
    FROM instep_entity WHERE stream_no = :no GROUP BY class
""")
_ACCEPTED: Final = text("""
    SELECT digest FROM instep_quarantine
    WHERE stream_no = :no AND accepted_at_us IS NOT NULL AND digest IS NOT NULL
""")


class SweepResult(msgspec.Struct, frozen=True):
    """The result of one step: the keys of removed entities, the cursor after it, and whether the
    sweep is done.
    """

    keys: Sequence[str]
    cursor: int
    done: bool
    kept: int = 0
    """Unmarked entities that were left, unproven (A17)."""


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
    if step.readable is None and holds_all(step.holds):
        return _keep_all(connection, dialect, stream, step, mode, now_us)
    values = {"cursor": step.cursor, "size": step.limit_records}
    ((last, size),) = dialect.execute(connection, _WINDOW, values)
    upto = step.cursor if last is None else last
    rows = {"no": stream.no, "cursor": step.cursor, "upto": upto, "attempt": step.attempt}
    doomed, named = _UNMARKED, dict[str, Any](rows)
    if step.readable is not None:
        doomed += f" AND class IN {dialect.members('classes')}"
        named["classes"] = json_array(step.readable)
    if step.holds:
        doomed += f" AND NOT ({held_sql(step.holds, named)})"
    if mode is not Journal.OFF:
        # First, since it tells what is about to go.
        journal.append_swept(connection, doomed, named, mode, now_us)
    removal = f"DELETE FROM instep_entity WHERE {doomed} RETURNING key"
    keys = [key for (key,) in dialect.execute(connection, removal, named)]
    kept = 0
    if step.readable is not None:
        # No GET shows the other classes: their unmarked entities are kept, as unproven.
        others = f"{_UNMARKED} AND class NOT IN {dialect.members('classes')}"
        keep = f"UPDATE instep_entity SET proven = 0, attempt = :attempt WHERE {others}"
        classes = {"classes": json_array(step.readable)}
        kept = connection.execute(text(keep), {**rows, **classes}).rowcount
        # The log is read up to where it stood at the baseline: what it brings from now on is newer,
        # also where a clock is set back and dates it before the baseline (A14).
        outdated = f"UPDATE instep_entity SET lineage = 0 WHERE {_BASELINE_ROWS}"
        connection.execute(text(outdated), rows)
    if stream.change_only:
        bodies = change_only.sweep(connection, dialect, stream.no, keys, rows)
        if mode is not Journal.OFF:
            journal.append_recomposed(connection, bodies, mode, now_us)
        recomposed = [(body, entity) for entity, body in bodies.items()]
        dialect.execute_many(connection, _RECOMPOSE, recomposed)
    if step.holds:
        left = f"SELECT count(*) FROM instep_entity WHERE {_UNMARKED}"
        kept += connection.execute(text(left), rows).scalar_one()
        unproven.note_held(connection, stream.no, step, _UNMARKED, rows, now_us)
    done = size < step.limit_records
    if done:
        _finish(connection, dialect, stream, step, mode, now_us)
    return SweepResult(keys, upto, done, kept)


def _finish(
    connection: Connection,
    dialect: Dialect,
    stream: StreamRow,
    step: SweepStep,
    mode: Journal,
    now_us: int,
) -> None:
    unproven.settle(connection, dialect, stream, step, mode=mode, now_us=now_us)
    purge_tombstones(connection, stream.no, step.attempt)


def _keep_all(
    connection: Connection,
    dialect: Dialect,
    stream: StreamRow,
    step: SweepStep,
    mode: Journal,
    now_us: int,
) -> SweepResult:
    """Nothing of the stream can be swept (A17): it is unproven with one row, whatever its size."""
    values: dict[str, Any] = {"no": stream.no, "attempt": step.attempt}
    count = text(f"SELECT count(*) FROM instep_entity WHERE {_ALL_UNMARKED}")
    kept: int = connection.execute(count, values).scalar_one()
    unproven.note_held(connection, stream.no, step, _ALL_UNMARKED, values, now_us)
    _finish(connection, dialect, stream, step, mode, now_us)
    return SweepResult((), step.cursor, done=True, kept=kept)


def estimate_sweep(connection: Connection, no: int, attempt: int) -> SweepEstimate:
    """Count the entities of a stream, and those last marked by an attempt before `attempt`."""
    rows = connection.execute(_ESTIMATE, {"no": no, "attempt": attempt}).all()
    by_class = {row.name: (row.total, int(row.unmarked)) for row in rows}
    accepted = connection.execute(_ACCEPTED, {"no": no}).scalars()
    return SweepEstimate(
        sum(total for total, _ in by_class.values()),
        sum(unmarked for _, unmarked in by_class.values()),
        by_class,
        frozenset(bytes(digest).hex() for digest in accepted),
    )
