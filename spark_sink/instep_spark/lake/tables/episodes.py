"""The tables of what lasts that derivations bring, such as `alarms`."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from instep.ports.lake import LakeEpisodeTable
from instep_spark.derivations import EVENT_DETAILS
from instep_spark.lake.batches.micro_batch import PendingRows
from instep_spark.lake.sql.dialect import Dialect
from instep_spark.lake.tables.base import rows_of_classes
from instep_spark.lake.tables.intervals import END_PLACE, SAME, SHOWN, IntervalTable
from instep_spark.lake.tables.schema import LAKE_TABLES
from instep_spark.place import LakePlace

__all__ = ["EpisodesTable"]

_WHO: Final = "consumer, stream, id"
_HEADER: Final = (
    *("key", "token", "lineage", "partition", "record_offset", "appended_at", "event_at"),
    *("ordinal", "attempt", *EVENT_DETAILS),
)
_STATED: Final = "stated"
_TYPES: Final = {"STRING": pa.string(), "BOOLEAN": pa.bool_()}
_HAPPENED: Final = (
    "coalesce(event_at, appended_at) AS happened_at, "
    # The append time stands for it: the event was no later.
    "CASE WHEN event_at IS NULL THEN 'BEFORE' ELSE event_spread END AS happened_spread"
)

_PLACE: Final = ", ".join(f"'{name}', `{name}`" for name in ("ordinal", *END_PLACE))
_END: Final = (
    f"named_struct('at', happened_at, 'spread', happened_spread, {_PLACE}, "
    "'by', CASE kind WHEN 'CREATE_UPDATE' THEN 'CLEAR' ELSE kind END)"
)


class EpisodesTable(IntervalTable):
    """An episode is one row: open while it lasts, then closed for good."""

    def __init__(self, derived: LakeEpisodeTable, place: LakePlace) -> None:
        super().__init__(LAKE_TABLES[derived.name], place)
        self._derived = derived
        self._read = derived.stated
        self._class = f"'{derived.entity_class}'"
        self.remembered = derived.remembered

    def concerns(self, pending: PendingRows) -> bool:
        # A header-only end names no class.
        return bool(pending.classes & {self._derived.entity_class, ""}) and any(
            stats.earliest_us is not None for stats in pending.stats_by_stream.values()
        )

    def concerned(self, held: pa.Table) -> pa.Table:
        """Statements of the class with what they say, and all ends."""
        rows = rows_of_classes(held, (self._derived.entity_class,))
        read = self._derived.read(rows["body"].to_pylist(), rows["parent_address"].to_pylist())
        for name, kind in self._read.items():
            rows = rows.append_column(f"{_STATED}_{name}", pa.array(read[name], _TYPES[kind]))
        return rows

    def closed_since(self, earliest_us: int, dialect: Dialect) -> str:
        # Event times may be off by any time, so the episode before is of any age.
        del earliest_us, dialect
        return "true"

    def class_of_row(self) -> str:
        return self._class

    def close(self, ordinal: str, at: str) -> str:
        ended = {**self._derived.closing, **self._derived.ended}
        closing = ", ".join(f"t.{name} = {sql.format(at=at)}" for name, sql in ended.items())
        return f"{closing}, t.ended_by = 'SWEEP', t.end_ordinal = {ordinal}, t.open = false"

    def moved(self, held: pa.Table | None) -> str:
        derived = self._derived
        header = ", ".join(f"`{name}`" for name in _HEADER)
        gathered = ", ".join(f"'{name}', {name}" for name in derived.gathered)
        kept = ", ".join(f"{name}: {kind}" for name, kind in derived.gathered.items())
        last = ", ".join(f"'{name}', `{name}`" for name in (*_HEADER, _STATED, "digest"))
        return f"""
            WITH instep_statements AS (
                SELECT {_WHO}, {header}, {_STATED}, kind, ends, xxhash64(body) AS digest,
                    false AS known, CAST(NULL AS STRUCT<{kept}>) AS kept
                FROM ({self._begun(held)})
                UNION ALL
                SELECT {_WHO}, {header}, {self._open()}, '' AS kind, false AS ends, digest,
                    true AS known, named_struct({gathered}) AS kept
                FROM instep_open
            ), instep_shown AS (
                SELECT *, lag(named_struct('ends', ends, 'digest', digest)) OVER (
                    PARTITION BY {_WHO} ORDER BY ordinal) AS told
                FROM instep_statements
            ), instep_compared AS (
                SELECT *, lag(named_struct(
                    'lineage', lineage, 'partition', `partition`, 'ends', ends,
                    'record_offset', record_offset, 'appended_at', appended_at,
                    'digest', digest)) OVER (PARTITION BY {_WHO} ORDER BY ordinal) AS earlier
                FROM instep_shown WHERE NOT {SHOWN}
            ), statements AS (
                SELECT *, {_HAPPENED} FROM instep_compared WHERE NOT {SAME}
            ), instep_derived AS (
                {derived.sql.format(last=f"named_struct({last})", end=_END)}
            )
            SELECT {_WHO}, known, {self._taken()} FROM instep_derived
        """

    def _begun(self, held: pa.Table | None) -> str:
        """SQL: the statements among `instep_rows` with what they say, and all ends."""
        derived, left_out = self._derived, f"{_STATED}.{self._derived.left_out}"
        if held is not None and f"{_STATED}_{derived.left_out}" in held.column_names:
            # `concerned` has read them.
            said = ", ".join(f"'{name}', {_STATED}_{name}" for name in self._read)
            reading = f"named_struct({said})"
        else:
            # Else Spark would read each body twice, to filter and to project.
            left_out = f"({derived.left_out_sql}) AND {left_out}"
            reading = f"CASE WHEN NOT ends THEN {derived.read_sql} END"
        return f"""SELECT * FROM (SELECT *, {reading} AS {_STATED}
                FROM instep_rows WHERE ends OR class = {self._class})
            WHERE ends OR (class = {self._class} AND NOT coalesce({left_out}, false))"""

    def _open(self) -> str:
        """SQL: what the last statement of an open row has said."""
        said = ", ".join(
            f"'{name}', {'false' if name == self._derived.left_out else name}"
            for name in self._read
        )
        return f"named_struct({said}) AS {_STATED}"

    def _taken(self) -> str:
        """SQL: the columns of the table."""
        derived = self._derived
        said = {name: f"last.{_STATED}.{name}" for name in self._read if name != derived.left_out}
        said |= {
            name: f"CASE WHEN end IS NULL THEN {said[name]} ELSE {sql} END"
            for name, sql in derived.ended.items()
        }
        taken = {
            **{name: f"last.`{name}`" for name in (*_HEADER, "digest")},
            **{column.name: f"`{column.name}`" for column in derived.columns},
            **said,
            "ended_by": "end.by",
            "end_ordinal": "end.ordinal",
            **{f"end_{name}": f"end.`{name}`" for name in END_PLACE},
            "open": "end IS NULL",
        }
        return ", ".join(f"{sql} AS `{name}`" for name, sql in taken.items())
