"""`identities`: which rows of `changes` are about one entity, where a stream is joined with a
baseline (A13).

It goes before every other table. What the rows of a micro-batch tell anew of entities, and the ids
that neither uuid nor key of a row tell, are added in one commit; nothing is committed where they
tell nothing. So a table that lags behind finds the ids as of its own rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from msgspec.structs import replace

from instep_spark.identity import (
    DEFAULT_ID,
    FURTHER,
    STATED,
    Entity,
    Identities,
    Resolved,
    Row,
    names_in,
    resolve,
)
from instep_spark.lake.batches.micro_batch import PendingRows
from instep_spark.lake.batches.progress import TableProgress
from instep_spark.lake.sql.literals import StreamKey, of_streams, rows_between
from instep_spark.lake.sql.supersede import ENTITY, RECORD_KINDS
from instep_spark.lake.tables.base import LakeTable
from instep_spark.lake.tables.schema import IDENTITIES
from instep_spark.place import LakePlace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "IdentitiesTable",
    "landed_rows",
    "resolved_rows",
    "resolved_table",
    "rows_of",
    "with_resolved",
]

CHUNK_RECORDS: Final = 100_000
"""Rows that are read in one go, by their headers alone: so much of a stream the driver holds."""
_TEXT: Final = pa.string()
_SCHEMA: Final = pa.schema(
    [
        *((name, _TEXT) for name in ("consumer", "stream", "id", "key", "class", "uuid")),
        ("ordinal", pa.int64()),
        ("above", _TEXT),
        ("places", pa.list_(_TEXT)),
        *((name, pa.bool_()) for name in ("claimed", "known", "resolved")),
        ("parent_address", _TEXT),
    ]
)


Range = tuple[int, int]
"""Behind the first and up to the second ordinal."""
_Rows = dict[StreamKey, list[Row]]
_Resolved = dict[StreamKey, list[Resolved]]
_RESOLVED: Final = pa.schema(
    [
        *(("consumer", _TEXT), ("stream", _TEXT), ("ordinal", pa.int64())),
        *(("known_id", _TEXT), ("known_parent", _TEXT)),
    ]
)


def resolved_table(resolved: Mapping[StreamKey, Iterable[Resolved]]) -> pa.Table:
    """The relation with which `with_resolved` joins rows of `changes`."""
    rows = [(*key, *one) for key, own in resolved.items() for one in own]
    columns = list(zip(*rows, strict=True)) or [()] * len(_RESOLVED)
    arrays = [pa.array(one, field.type) for one, field in zip(columns, _RESOLVED, strict=True)]
    return pa.Table.from_arrays(arrays, schema=_RESOLVED)


def with_resolved(rows: DataFrame, resolved: pa.Table) -> DataFrame:
    """Return these rows with the ids of their entities, each about several once for each."""
    known = rows.sparkSession.createDataFrame(resolved)
    joined = rows.join(known, ["consumer", "stream", "ordinal"], "left")
    columns = [_KNOWN.get(name, f"`{name}`") for name in rows.columns]
    return joined.selectExpr(*columns)


_KNOWN: Final = {
    "id": "coalesce(known_id, id) AS id",
    "parent_address": "coalesce(known_parent, parent_address) AS parent_address",
}


def rows_of(rows: DataFrame, ranges: Mapping[StreamKey, Range]) -> Iterator[_Rows]:
    """The statements among these rows of `changes`, each stream's behind the first and up to the
    second ordinal, in order and chunk by chunk, as `Identities` reads them.
    """
    columns = [f"{FURTHER} AS envelope" if name == "envelope" else f"`{name}`" for name in STATED]
    for chunk in _chunks(ranges):
        begin = {key: one for key, (one, _) in chunk.items()}
        upto = {key: one for key, (_, one) in chunk.items()}
        chosen = rows_between(rows, begin, upto).where(ENTITY)
        yield _by_stream(chosen.selectExpr("consumer", "stream", *columns).toArrow())


def _chunks(ranges: Mapping[StreamKey, Range]) -> Iterator[dict[StreamKey, Range]]:
    chunk: dict[StreamKey, Range] = {}
    left = CHUNK_RECORDS
    for key, (begin, upto) in ranges.items():
        at = begin
        while at < upto:
            end = min(upto, at + left)
            chunk[key] = (at, end)
            left -= end - at
            at = end
            if not left:
                yield chunk
                chunk, left = {}, CHUNK_RECORDS
    if chunk:
        yield chunk


def _by_stream(statements: pa.Table) -> _Rows:
    found: _Rows = {}
    for row in sorted(statements.to_pylist(), key=itemgetter("ordinal")):
        found.setdefault((row["consumer"], row["stream"]), []).append(row)
    return found


def landed_rows(changes: str) -> str:
    """SQL: the rows of `changes` with the ids that each alone tells."""
    return f"(SELECT *, {DEFAULT_ID} AS id FROM {changes})"


def resolved_rows(changes: str, identities: str) -> str:
    """SQL: the rows of `changes` with the ids of their entities; both are SQL for a table."""
    return f"""(SELECT c.*, coalesce(i.known_id, {DEFAULT_ID}) AS id FROM {changes} c LEFT JOIN (
        SELECT consumer, stream, ordinal, id AS known_id FROM {identities} WHERE resolved) i
        USING (consumer, stream, ordinal))"""


class IdentitiesTable(LakeTable):
    """The table `identities`. It is created when the first stream comes that needs it."""

    feeds_others = True

    def __init__(self, place: LakePlace) -> None:
        super().__init__(IDENTITIES, place)
        self.is_open = False
        self._recent: dict[StreamKey, tuple[int, int, list[Resolved]]] = {}

    def open(self, spark: SparkSession, *, to_replace: bool = False) -> None:
        """See `LakeTable`."""
        super().open(spark, to_replace=to_replace)
        self.is_open = True
        self._recent = {}

    def _making_again(self) -> str:
        return "move its folder away, and run"

    def follow(self, spark: SparkSession, pending: PendingRows, entities: TableProgress) -> None:
        """Read the rows that `entities` lacks, before any table does."""
        joined = {
            key: stats
            for key, stats in pending.stats_by_stream.items()
            if (stats.keyed or entities[key].by_uuid)
            and not (stats.partial or entities[key].by_change)
        }
        if not joined:
            return
        if not self.is_open:
            self.open(spark)  # it may be there, and know some of the rows
        ranges = {
            key: (max(self.progress[key].ordinal, stats.first - 1), stats.last)
            for key, stats in joined.items()
        }
        if pending.held is None:
            chunks = rows_of(pending.rows, ranges)
        else:
            chunks = iter([_held(pending.held, ranges)])
        resolved: _Resolved = {key: [] for key in ranges}
        for rows in chunks:
            for key, found in self._read(spark, rows).items():
                resolved[key] += found
        self._pass(ranges)
        self._recent = {key: (begin, upto, resolved[key]) for key, (begin, upto) in ranges.items()}

    def catch_up(self, spark: SparkSession, changes: str, entities: LakeTable) -> None:
        """Read what `entities` has passed and this table has not: it was restored, or removed.
        Where `changes` has lost the first rows, the entities that exist are all that is known.
        """
        ranges = {
            key: (self.progress[key].ordinal, at.ordinal)
            for key, at in entities.progress.by_stream.items()
            if at.by_uuid and not at.by_change
        }
        if not ranges:
            return
        if not self.is_open:
            self.open(spark)
            ranges = {key: (self.progress[key].ordinal, upto) for key, (_, upto) in ranges.items()}
        ranges = {key: (begin, upto) for key, (begin, upto) in ranges.items() if begin < upto}
        if not ranges:
            return
        landed = spark.sql(f"SELECT * FROM {changes}")
        begin = {key: one for key, (one, _) in ranges.items()}
        first = rows_between(landed, begin, {key: one + 1 for key, one in begin.items()})
        whole = {(row.consumer, row.stream) for row in first.select("consumer", "stream").collect()}
        stored = entities.read(spark).selectExpr(
            "*", "'CREATE_UPDATE' AS kind", "false AS ends", "true AS whole"
        )
        for rows, keys in ((landed, ranges.keys() & whole), (stored, ranges.keys() - whole)):
            for chunk in rows_of(rows, {key: ranges[key] for key in keys}):
                self._read(spark, chunk)
        self._pass(ranges)

    def _pass(self, ranges: Mapping[StreamKey, Range]) -> None:
        moved = {
            key: replace(
                self.progress[key], ordinal=max(self.progress[key].ordinal, upto), by_uuid=True
            )
            for key, (_, upto) in ranges.items()
        }
        # Durable with the next commit: read again, these rows would tell nothing again.
        self.progress = self.progress.moved(moved)

    def _read(self, spark: SparkSession, rows: _Rows) -> _Resolved:
        """Read statements, and add what they tell. Returns the ids that neither uuid nor key of a
        row tell.
        """
        if not rows:
            return {}
        known = self._load(spark, {key: names_in(own) for key, own in rows.items()})
        found: _Resolved = {}
        told: list[dict[str, Any]] = []
        for key, own in rows.items():
            found[key], entities = resolve(known[key], own)
            told += [_row(key, one) for one in entities]
            told += [
                {**_row_of(key, one.ordinal), **one._asdict(), "resolved": True}
                for one in found[key]
            ]
        if told:
            moved = {
                key: replace(self.progress[key], ordinal=own[-1]["ordinal"], by_uuid=True)
                for key, own in rows.items()
            }
            self._add(spark, told, self.progress.moved(moved))
        return found

    def _load(
        self, spark: SparkSession, names: Mapping[StreamKey, Collection[str]]
    ) -> dict[StreamKey, Identities]:
        """What is known of the entities with these names."""
        asked = [(*key, name) for key, own in names.items() for name in own]
        columns = zip(*asked, strict=True) if asked else ((), (), ())
        arrays = [pa.array(column, _TEXT) for column in columns]
        table = pa.Table.from_arrays(arrays, names=["consumer", "stream", "name"])
        spark.createDataFrame(table).createOrReplaceTempView("instep_names")
        told = f"SELECT * FROM {self.sql} t WHERE known AND {of_streams(names)}"
        found = spark.sql(f"""
            SELECT * FROM ({told}) LEFT SEMI JOIN (
                SELECT consumer, stream, id FROM (
                    SELECT consumer, stream, id, explode(array(id, key, uuid)) AS name FROM ({told})
                ) LEFT SEMI JOIN instep_names USING (consumer, stream, name)
            ) USING (consumer, stream, id)
        """).toArrow()
        known = {key: Identities() for key in names}
        for row in sorted(found.to_pylist(), key=itemgetter("ordinal")):
            known[row["consumer"], row["stream"]].load(
                Entity(
                    *(row["id"], row["ordinal"], row["key"], row["class"], row["uuid"]),
                    *(row["above"], tuple(row["places"]), row["claimed"]),
                )
            )
        return known

    def _add(
        self, spark: SparkSession, rows: list[dict[str, Any]], progress: TableProgress
    ) -> None:
        told = spark.createDataFrame(pa.Table.from_pylist(rows, _SCHEMA))
        told.createOrReplaceTempView("instep_told")
        names = ", ".join(f"`{name}`" for name in _SCHEMA.names)
        values = ", ".join(f"s.`{name}`" for name in _SCHEMA.names)
        self.commit(
            spark,
            progress,
            f"MERGE INTO {self.sql} t USING instep_told s ON false "
            f"WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({values})",
        )

    # -- the ids of rows -------------------------------------------------------------------------

    def resolve(self, pending: PendingRows) -> PendingRows:
        """The rows with the ids of their entities. A row about several is there for each."""
        bounds = {
            key: (stats.first - 1, stats.last)
            for key, stats in pending.stats_by_stream.items()
            if self.progress[key].by_uuid
        }
        found = self._resolved(pending.rows.sparkSession, bounds) if bounds else None
        if found is None or found.num_rows == 0:
            return pending
        rows = pending.rows
        if pending.held is None:
            return replace(pending, rows=with_resolved(rows, found))
        held = _resolve_held(pending.held, found)
        return replace(
            pending, held=held, rows=rows.sparkSession.createDataFrame(held, rows.schema)
        )

    def _resolved(
        self, spark: SparkSession, bounds: Mapping[StreamKey, tuple[int, int]]
    ) -> pa.Table:
        """Return what is known of the rows within these bounds, as `resolved_table`."""
        recent = {key: self._recent.get(key, (0, -1, [])) for key in bounds}
        if all(
            recent[key][0] <= begin and upto <= recent[key][1]
            for key, (begin, upto) in bounds.items()
        ):
            return resolved_table(
                {
                    key: [one for one in recent[key][2] if begin < one.ordinal <= upto]
                    for key, (begin, upto) in bounds.items()
                }
            )
        begin = {key: one for key, (one, _) in bounds.items()}
        upto = {key: one for key, (_, one) in bounds.items()}
        named = spark.sql(f"""
            SELECT consumer, stream, ordinal, id AS known_id, parent_address AS known_parent
            FROM {self.sql} t WHERE resolved AND {of_streams(bounds)}
        """)
        return rows_between(named, begin, upto).toArrow()


def _row_of(key: StreamKey, ordinal: int) -> dict[str, Any]:
    whose = {"consumer": key[0], "stream": key[1]}
    return {**whose, "ordinal": ordinal, "known": False, "resolved": False}


def _row(key: StreamKey, entity: Entity) -> dict[str, Any]:
    return {
        **_row_of(key, entity.ordinal),
        **{name: getattr(entity, name) for name in ("id", "key", "uuid", "above", "claimed")},
        "class": entity.entity_class,
        "places": list(entity.places),
        "known": True,
    }


def _held(held: pa.Table, ranges: Mapping[StreamKey, Range]) -> _Rows:
    """The statements of these ranges among rows that the driver holds."""
    records = held.select(["consumer", "stream", "kind", "whole", *STATED]).to_pylist()
    nothing = (0, 0)
    found: _Rows = {}
    for row in sorted(records, key=itemgetter("ordinal")):
        key = (row["consumer"], row["stream"])
        begin, upto = ranges.get(key, nothing)
        if begin < row["ordinal"] <= upto and row["whole"] and row["kind"] in RECORD_KINDS:
            found.setdefault(key, []).append(row)
    return found


def _resolve_held(held: pa.Table, found: pa.Table) -> pa.Table:
    known: dict[tuple[str, str, int], list[tuple[str, str | None]]] = {}
    for consumer, stream, ordinal, known_id, parent in zip(
        *(column.to_pylist() for column in found.columns), strict=True
    ):
        known.setdefault((consumer, stream, ordinal), []).append((known_id, parent))
    at: list[int] = []
    told: dict[str, list[str | None]] = {"id": [], "parent_address": []}
    names = ("consumer", "stream", "ordinal", "id", "parent_address")
    for number, row in enumerate(held.select(names).to_pylist()):
        own = (row["id"], None)
        for known_id, parent in known.get((row["consumer"], row["stream"], row["ordinal"]), [own]):
            at.append(number)
            told["id"].append(known_id)
            told["parent_address"].append(parent or row["parent_address"])
    taken = held.take(pa.array(at, pa.int64()))
    for name, values in told.items():
        column = held.schema.get_field_index(name)
        field = held.schema.field(column)
        taken = taken.set_column(column, field, pa.array(values, field.type))
    return taken
