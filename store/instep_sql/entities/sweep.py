"""Mark and sweep in the store (TR-548 ST-2.2 step 7; A5 to A7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, text

from instep.alignment.absence import holds_all
from instep.model.batches import SweepStep
from instep.model.streams import SweepEstimate
from instep_sql.derived.statements import end_swept
from instep_sql.engine.dialect import json_array
from instep_sql.entities import change_only, journal, unproven
from instep_sql.entities.held_sql import held_sql
from instep_sql.entities.streams import StreamTransaction
from instep_sql.entities.tombstones import purge_tombstones

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

    keys: Sequence[str] = ()
    cursor: int = 0
    done: bool = False
    kept: int = 0
    """Unmarked entities that were left, unproven (A17)."""


def sweep(tx: StreamTransaction, step: SweepStep, began_at_us: int) -> SweepResult:
    """Take a step of a sweep. What is derived of a removed entity ends at `began_at_us`, when the
    attempt began.
    """
    if step.readable is None and holds_all(step.holds):
        swept = _keep_all(tx, step)
    else:
        swept = _sweep_window(tx, step)
    if swept.done:
        unproven.settle(tx, step)
        purge_tombstones(tx, step.attempt)
    kept, keys = tx.stream.kept.statements, swept.keys
    end_swept(tx, kept, keys, began_at_us, done=swept.done)
    return swept


def _sweep_window(tx: StreamTransaction, step: SweepStep) -> SweepResult:
    """Remove the unmarked entities among the next rows of the table (A5). All steps together pass
    the table once: an interrupted sweep goes on from its cursor (A7).

    A step reads `limit_records` rows of any stream, so its work is bounded in a shared database,
    too. New rows are marked, so the sweep never removes them.
    """
    connection, dialect, stream = tx.connection, tx.dialect, tx.stream
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
    # First, since it tells what is about to go.
    journal.append_swept(tx, doomed, named)
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
        journal.append_recomposed(tx, bodies)
        recomposed = [(body, entity) for entity, body in bodies.items()]
        dialect.execute_many(connection, _RECOMPOSE, recomposed)
    if step.holds:
        left = f"SELECT count(*) FROM instep_entity WHERE {_UNMARKED}"
        kept += connection.execute(text(left), rows).scalar_one()
        unproven.note_held(tx, step, _UNMARKED, rows)
    return SweepResult(keys, upto, size < step.limit_records, kept)


def _keep_all(tx: StreamTransaction, step: SweepStep) -> SweepResult:
    """Nothing of the stream can be swept (A17): it is unproven with one row, whatever its size."""
    values: dict[str, Any] = {"no": tx.no, "attempt": step.attempt}
    count = text(f"SELECT count(*) FROM instep_entity WHERE {_ALL_UNMARKED}")
    kept: int = tx.connection.execute(count, values).scalar_one()
    unproven.note_held(tx, step, _ALL_UNMARKED, values)
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
