"""`identities`: which rows of `changes` are about one entity, where a stream is joined with a
baseline (A13).

It goes before every other table. What the rows of a micro-batch tell anew of entities, and the ids
that neither uuid nor key of a row tell, are added in one commit; nothing is committed where they
tell nothing. So a table that lags behind finds the ids as of its own rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
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
    Row,
    names_in,
    resolve,
)
from instep_spark.lake.batches.micro_batch import PendingRows
from instep_spark.lake.batches.progress import TableProgress
from instep_spark.lake.sql.literals import StreamKey, in_stream, of_streams, rows_between
from instep_spark.lake.sql.supersede import ENTITY
from instep_spark.lake.tables.base import LakeTable
from instep_spark.lake.tables.schema import IDENTITIES
from instep_spark.place import LakePlace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["KNOWN_IDS", "IdentitiesTable", "landed_rows", "resolved_rows", "rows_of"]

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
    ]
)


KNOWN_IDS: Final = pa.schema(
    [
        *(("consumer", _TEXT), ("stream", _TEXT), ("ordinal", pa.int64())),
        ("known_id", _TEXT),
    ]
)
"""Rows of `changes` with the ids that `identities` has for them."""


def rows_of(rows: DataFrame, key: StreamKey, begin: int, upto: int) -> Iterator[list[Row]]:
    """The statements of a stream of `changes` behind the first and up to the second ordinal, chunk
    by chunk, as `Identities` reads them.
    """
    columns = [f"{FURTHER} AS envelope" if name == "envelope" else f"`{name}`" for name in STATED]
    for first in range(begin, upto, CHUNK_RECORDS):
        bounds = f"ordinal > {first} AND ordinal <= {min(first + CHUNK_RECORDS, upto)}"
        chosen = rows.where(f"{in_stream(key)} AND {bounds} AND {ENTITY}").selectExpr(*columns)
        yield sorted(chosen.toArrow().to_pylist(), key=itemgetter("ordinal"))


def landed_rows(changes: str) -> str:
    """SQL: the rows of `changes` with the ids that each alone tells."""
    return f"(SELECT *, {DEFAULT_ID} AS id FROM {changes})"  # noqa: S608 — our own table


def resolved_rows(changes: str, identities: str) -> str:
    """SQL: the rows of `changes` with the ids of their entities; both are SQL for a table."""
    return f"""(SELECT c.*, coalesce(i.known_id, {DEFAULT_ID}) AS id FROM {changes} c LEFT JOIN (
        SELECT consumer, stream, ordinal, id AS known_id FROM {identities} WHERE resolved) i
        USING (consumer, stream, ordinal))"""  # noqa: S608 — names of our own tables


class IdentitiesTable(LakeTable):
    """The table `identities`. It is created when the first stream comes that needs it."""

    def __init__(self, place: LakePlace) -> None:
        super().__init__(IDENTITIES, place)
        self.is_open = False
        self._recent: dict[StreamKey, tuple[int, int, list[tuple[int, str]]]] = {}

    def open(self, spark: SparkSession, *, to_replace: bool = False) -> None:
        """See `LakeTable`."""
        super().open(spark, to_replace=to_replace)
        self.is_open = True
        self._recent = {}

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
            self.open(spark)
        for key, stats in joined.items():
            begin = max(self.progress[key].ordinal, stats.first - 1)
            if begin < stats.last:
                chunks = self._pending_chunks(pending, key, begin, stats.last)
                resolved = self._read(spark, key, chunks, stats.last)
                self._recent[key] = (begin, stats.last, resolved)

    def catch_up(self, spark: SparkSession, changes: str, entities: LakeTable) -> None:
        """Read what `entities` has passed in streams that are not followed here yet: a lake that an
        older version made. Where `changes` has lost the first rows, the entities that exist are all
        that is known.
        """
        for key, at in entities.progress.by_stream.items():
            if not at.by_uuid or at.by_change:
                continue
            if not self.is_open:
                self.open(spark)
            if self.progress[key].by_uuid:
                continue
            rows = spark.sql(f"SELECT * FROM {changes}")  # noqa: S608 — our own table
            first = f"{in_stream(key)} AND ordinal = 1"
            if not rows.where(first).select("ordinal").limit(1).collect():
                rows = entities.read(spark).selectExpr("*", "false AS ends", "true AS whole")
                rows = rows.selectExpr("*", "'CREATE_UPDATE' AS kind")
            self._read(spark, key, rows_of(rows, key, 0, at.ordinal), at.ordinal)

    def _pending_chunks(
        self, pending: PendingRows, key: StreamKey, begin: int, upto: int
    ) -> Iterator[list[Row]]:
        if pending.held is None:
            yield from rows_of(pending.rows, key, begin, upto)
            return
        names = ["consumer", "stream", "kind", "whole", *STATED]
        held = pending.held.select(names).to_pylist()
        yield sorted(
            (
                row
                for row in held
                if (row["consumer"], row["stream"]) == key
                and row["ordinal"] > begin
                and row["whole"]
                and row["kind"] in {"CREATE_UPDATE", "DELETE", "TOMBSTONE"}
            ),
            key=itemgetter("ordinal"),
        )

    def _read(
        self, spark: SparkSession, key: StreamKey, chunks: Iterator[list[Row]], upto: int
    ) -> list[tuple[int, str]]:
        resolved: list[tuple[int, str]] = []
        for rows in chunks:
            if not rows:
                continue
            known = self._load(spark, key, names_in(rows))
            found, told = resolve(known, rows)
            resolved += found
            at = replace(self.progress[key], ordinal=rows[-1]["ordinal"], by_uuid=True)
            progress = self.progress.moved({key: at})
            if found or told:
                self._add(spark, key, found, told, progress)
            else:
                self.progress = progress  # read again, these rows would tell nothing again
        at = replace(self.progress[key], ordinal=upto, by_uuid=True)
        self.progress = self.progress.moved({key: at})
        return resolved

    def _load(self, spark: SparkSession, key: StreamKey, names: Collection[str]) -> Identities:
        """What is known of the entities with these names."""
        known = Identities()
        asked = pa.table({"name": pa.array(sorted(names), pa.string())})
        spark.createDataFrame(asked).createOrReplaceTempView("instep_names")
        told = f"SELECT * FROM {self.sql} t WHERE known AND {in_stream(key)}"  # noqa: S608
        found = spark.sql(f"""
            SELECT id, ordinal, key, class, uuid, above, places, claimed FROM ({told})
            LEFT SEMI JOIN (
                SELECT id FROM (SELECT id, explode(array(id, key, uuid)) AS name FROM ({told}))
                LEFT SEMI JOIN instep_names USING (name)
            ) USING (id)
        """).toArrow()  # noqa: S608 — names of our own table, literals escaped
        for row in sorted(found.to_pylist(), key=itemgetter("ordinal")):
            known.load(
                Entity(
                    *(row["id"], row["ordinal"], row["key"], row["class"], row["uuid"]),
                    *(row["above"], tuple(row["places"]), row["claimed"]),
                )
            )
        return known

    def _add(
        self,
        spark: SparkSession,
        key: StreamKey,
        resolved: Collection[tuple[int, str]],
        told: Collection[Entity],
        progress: TableProgress,
    ) -> None:
        rows: list[dict[str, Any]] = [
            {"ordinal": ordinal, "id": known, "resolved": True} for ordinal, known in resolved
        ]
        rows += [
            {
                **{name: getattr(one, name) for name in ("id", "ordinal", "key", "uuid", "above")},
                "class": one.entity_class,
                "places": list(one.places),
                "claimed": one.claimed,
                "known": True,
            }
            for one in told
        ]
        whose = {"consumer": key[0], "stream": key[1], "known": False, "resolved": False}
        table = pa.Table.from_pylist([{**whose, **row} for row in rows], _SCHEMA)
        spark.createDataFrame(table).createOrReplaceTempView("instep_told")
        names = ", ".join(f"`{name}`" for name in _SCHEMA.names)
        values = ", ".join(f"s.`{name}`" for name in _SCHEMA.names)
        self.commit(
            spark,
            progress,
            f"MERGE INTO {self.sql} t USING instep_told s ON false "  # noqa: S608 — constants
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
            known = rows.sparkSession.createDataFrame(found)
            joined = rows.join(known, ["consumer", "stream", "ordinal"], "left")
            columns = [f"`{name}`" for name in rows.columns if name != "id"]
            return replace(
                pending, rows=joined.selectExpr(*columns, "coalesce(known_id, id) AS id")
            )
        held = _resolved_table(pending.held, found)
        return replace(
            pending, held=held, rows=rows.sparkSession.createDataFrame(held, rows.schema)
        )

    def _resolved(
        self, spark: SparkSession, bounds: Mapping[StreamKey, tuple[int, int]]
    ) -> pa.Table:
        """Return consumer, stream, ordinal and `known_id` of the rows within these bounds."""
        recent = {key: self._recent.get(key, (0, -1, [])) for key in bounds}
        if all(
            recent[key][0] <= begin and upto <= recent[key][1]
            for key, (begin, upto) in bounds.items()
        ):
            rows = [
                {"consumer": key[0], "stream": key[1], "ordinal": ordinal, "known_id": known_id}
                for key, (begin, upto) in bounds.items()
                for ordinal, known_id in recent[key][2]
                if begin < ordinal <= upto
            ]
            return pa.Table.from_pylist(rows, KNOWN_IDS)
        begin = {key: one for key, (one, _) in bounds.items()}
        upto = {key: one for key, (_, one) in bounds.items()}
        named = spark.sql(f"""
            SELECT consumer, stream, ordinal, id AS known_id FROM {self.sql} t
            WHERE resolved AND {of_streams(bounds)}
        """)  # noqa: S608 — names of our own table, literals escaped
        return rows_between(named, begin, upto).toArrow()

    def twins(self, spark: SparkSession, upto: Mapping[StreamKey, int]) -> set[StreamKey]:
        """Of these streams, those where entities share a uuid, up to these ordinals."""
        if not upto:
            return set()
        named = spark.sql(f"""
            SELECT consumer, stream, ordinal FROM {self.sql} t
            WHERE known AND id <> uuid AND {of_streams(upto)}
        """)  # noqa: S608 — names of our own table, literals escaped
        found = rows_between(named, dict.fromkeys(upto, 0), upto)
        rows = found.select("consumer", "stream").distinct().collect()
        return {(row.consumer, row.stream) for row in rows}


def _resolved_table(held: pa.Table, found: pa.Table) -> pa.Table:
    ids: dict[tuple[str, str, int], list[str]] = {}
    for row in found.to_pylist():
        ids.setdefault((row["consumer"], row["stream"], row["ordinal"]), []).append(row["known_id"])
    at: list[int] = []
    resolved: list[str] = []
    names = ("consumer", "stream", "ordinal", "id")
    for number, row in enumerate(held.select(names).to_pylist()):
        several = ids.get((row["consumer"], row["stream"], row["ordinal"]), [row["id"]])
        at += [number] * len(several)
        resolved += several
    column = held.schema.get_field_index("id")
    field = held.schema.field(column)
    return held.take(pa.array(at, pa.int64())).set_column(
        column, field, pa.array(resolved, field.type)
    )
