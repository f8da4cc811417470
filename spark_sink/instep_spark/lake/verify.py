"""Compares `entities` with `changes`, of the same lake or of a fresh reading of the log.

Expected state is computed from all rows, one by one, by rule A3, sweeps included: another algorithm
than the pipeline's. CHANGE_ONLY streams are composed anew in the driver, which holds their entities
meanwhile. The comparison is one join (A12).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from instep.errors import SinkError
from instep_spark.identity import DEFAULT_ID, Identities, Resolved, resolve
from instep_spark.lake.batches.progress import (
    CommitMetadata,
    DeferredSweep,
    StreamProgress,
    TableContent,
    TableProgress,
    read_commit_metadata,
    read_commits,
    read_content,
)
from instep_spark.lake.batches.stats import Sweep, readable_of
from instep_spark.lake.sql.literals import StreamKey, in_any_stream, in_stream, ordinals, text
from instep_spark.lake.sql.supersede import ENTITY, IDENTITY, RECORD, row_supersedes
from instep_spark.lake.sweeps import OVERTAKEN
from instep_spark.lake.tables.base import table_exists
from instep_spark.lake.tables.composed import CHUNK_RECORDS, chunk_of
from instep_spark.lake.tables.composer import Composer, Row
from instep_spark.lake.tables.identities import resolved_table, rows_of, with_resolved
from instep_spark.landing_schema import ControlKind
from instep_spark.place import LakePlace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Comparison", "StreamVerdict", "audit", "compare", "expected", "verify"]

_WANTED: Final = ("consumer", "stream", "id", "key", "class", "token", "body")
"""What is expected of an entity, beside whether it is proven."""
_NEVER: Final = 9_223_372_036_854_775_807
_STATE: Final = (
    "STRUCT<alive: BOOLEAN, lineage: BIGINT, partition: STRING, record_offset: BIGINT, "
    "appended_at: TIMESTAMP, ordinal: BIGINT, marked: BIGINT, attempt: BIGINT, "
    "token: STRING>"
)
_OUTDATED: Final = """((stored.token = '' OR row.token = '' AND NOT row.ends) AND coalesce(exists(
    sweeps, s -> s.at >= stored.ordinal AND s.at < row.ordinal), false))"""
"""SQL: a sweep was made since a baseline read what is stored, or before one has read `row`: they
compare with nothing (A14)."""
_SHOWN: Final = 100


class StreamVerdict(msgspec.Struct, frozen=True):
    """How many entities of a stream have one verdict."""

    consumer: str
    stream: str
    verdict: str
    entities: int


class Comparison(msgspec.Struct, frozen=True):
    """The result of the comparison, in numbers of entities."""

    right: int
    stale: int
    """Both sides have the entity, with different content, or one has it unproven (A22)."""
    bogus: int
    """The table has the entity, and no row of `changes` states it."""
    missing: int
    undecided: int = 0
    """They differ, and one side has a statement about the entity that is newer than all that the
    other one had read."""
    examples: tuple[dict[str, Any], ...] = ()
    """Some of those that differ: consumer, stream, id, key, class, verdict."""
    by_stream: tuple[StreamVerdict, ...] = ()
    rows_read: int | None = None
    """Rows of `changes` that were read for it; None: they were not counted."""
    rows_behind: Mapping[str, int | None] = {}
    """Rows of `changes` that a table lacks, by name of the table; None: none of its commits tells
    how far it has come."""
    altered: Mapping[str, int | None] = {}
    """By name of each table whose rows another writer has altered: how many rows are there that
    `changes` does not amount to, and of those that it does amount to, are not; None: it was not
    made again to compare it."""

    @property
    def counts(self) -> dict[str, int]:
        """Entities by verdict."""
        names = ("right", "stale", "bogus", "missing", "undecided")
        return {name: getattr(self, name) for name in names}

    def __str__(self) -> str:
        told = [f"{count:,} {name}" for name, count in self.counts.items()]
        if self.rows_read is not None:
            told.append(f"{self.rows_read:,} rows of changes read")
        for name, rows in self.rows_behind.items():
            if rows is None:
                told.append(f"{name}: unknown how far it has come")
            elif rows:
                told.append(f"{name}: {rows:,} rows behind")
        for name, differing in self.altered.items():
            found = "not compared" if differing is None else f"{differing:,} differ"
            told.append(f"{name}: another writer has altered rows, {found}")
        return ", ".join(told)

    @property
    def clean(self) -> bool:
        """Whether nothing differs, no table lacks a row of `changes`, and what another writer has
        altered is right.
        """
        counts = (*self.rows_behind.values(), *self.altered.values())
        return all(rows == 0 for rows in counts) and not (self.stale or self.bogus or self.missing)


def verify(spark: SparkSession, place: LakePlace, tables: Collection[str] = ()) -> Comparison:
    """Recompute `entities` from all of `changes`, and compare (L5). What the table says of itself
    counts only for sweeps that are held, and for how many rows each of `tables` lacks.

    Raises `SinkError` where `changes` has lost rows, or has gone back behind a table.
    """
    if not table_exists(spark, place.table("changes")):
        refuse_without_changes(spark, place)
    if not table_exists(spark, place.table("entities")):
        raise SinkError(
            "there is no table entities",
            where=place.location("entities"),
            hint="make it: instep lake run",
        )
    changes = spark.sql(f"SELECT * FROM {place.table('changes')}")
    landed = _landed(changes, place.location("changes"))
    contents = {name: _content(spark, place.table(name)) for name in ("entities", *tables)}
    known = {name: _progress(spark, place.table(name), one) for name, one in contents.items()}
    for name, progress in known.items():
        if progress is not None:
            _refuse_other_rows(changes, landed, name, progress)
    behind = {
        name: None if progress is None else _behind(landed, progress)
        for name, progress in known.items()
    }
    for name, keys in _helped(known["entities"]).items():
        contents[name] = _content(spark, place.table(name))
        progress = _progress(spark, place.table(name), contents[name])
        own = {key: landed[key] for key in keys & landed.keys()}
        behind[name] = None if progress is None else _behind(own, progress)
    wanted = expected(changes, known["entities"], whole=True)
    compared = compare(wanted, spark.sql(f"SELECT * FROM {place.table('entities')}"))
    rows_read = sum(rows for _, rows in landed.values())
    return msgspec.structs.replace(
        compared,
        rows_read=rows_read,
        rows_behind=behind,
        altered={name: None for name, one in contents.items() if one.altered},
    )


def refuse_without_changes(spark: SparkSession, place: LakePlace) -> None:
    """Raise `SinkError`: there is no table `changes`."""
    if table_exists(spark, place.table("entities")):
        raise SinkError(
            "there is no table changes, of which the tables of this lake were made",
            where=place.location("changes"),
            hint="was it removed? Bring it back, or move the tables away and land the log anew",
        )
    raise SinkError(
        "there are no changes yet",
        where=place.location("changes"),
        hint="land some first: instep run CONFIG with a delta sink",
    )


def _landed(changes: DataFrame, where: str) -> dict[StreamKey, tuple[int, int]]:
    """By stream of `changes` the last ordinal, and the number of rows. Raises `SinkError` where
    rows are missing before the last one.
    """
    found = changes.groupBy("consumer", "stream").agg({"ordinal": "max", "*": "count"}).collect()
    landed = {(row.consumer, row.stream): (row["max(ordinal)"], row["count(1)"]) for row in found}
    for (consumer, stream), (last, rows) in landed.items():
        if last < rows:
            raise SinkError(
                f"changes has {rows:,} rows of {consumer} / {stream} up to the ordinal {last:,}: "
                "some are there twice",
                where=where,
                hint="another writer has appended to it: restore it to a version before that",
            )
        if last != rows:
            raise SinkError(
                f"changes has {rows:,} of {last:,} rows of {consumer} / {stream}: what is lost "
                "tells of entities that cannot be made again",
                where=where,
                hint="nothing can be verified with it; compare with another reading of the log: "
                "instep lake audit",
            )
    return landed


def _content(spark: SparkSession, table: str) -> TableContent:
    if not table_exists(spark, table):
        return TableContent(metadata=CommitMetadata(TableProgress()))
    return read_content(partial(read_commits, spark, table))


def _helped(entities: TableProgress | None) -> dict[str, AbstractSet[StreamKey]]:
    """The tables that are made for some streams only, and these streams."""
    if entities is None:
        return {}
    changing = entities.changing()
    joined = {key for key, at in entities.by_stream.items() if at.by_uuid} - changing
    return {name: of for name, of in (("composed", changing), ("identities", joined)) if of}


def _progress(spark: SparkSession, table: str, content: TableContent) -> TableProgress | None:
    """How far a table has come; None: unknown. One that is not there has not begun."""
    if content.metadata is not None:
        return content.metadata.progress
    return None if spark.sql(f"SELECT 1 FROM {table} LIMIT 1").collect() else TableProgress()


def _refuse_other_rows(
    changes: DataFrame,
    landed: Mapping[StreamKey, tuple[int, int]],
    name: str,
    progress: TableProgress,
) -> None:
    """Raise `SinkError` where a table was made of rows that `changes` does not have."""
    ahead = {
        key: at.ordinal
        for key, at in progress.by_stream.items()
        if at.ordinal > landed.get(key, (0, 0))[0]
    }
    if not ahead:
        seen = {key: at.seen for key, at in progress.by_stream.items() if at.seen is not None}
        rows = changes.join(
            ordinals(changes.sparkSession, seen={key: one[0] for key, one in seen.items()}),
            ["consumer", "stream"],
        ).where("ordinal = seen")
        times = rows.selectExpr("consumer", "stream", "unix_micros(committed_at) AS us").collect()
        ahead = {
            key: seen[key][0]
            for row in times
            if seen[key := (row.consumer, row.stream)][1] != row.us
        }
    if ahead:
        (consumer, stream), ordinal = min(ahead.items())
        raise SinkError(
            f"changes does not have the rows of {consumer} / {stream} of which {name} was made, up "
            f"to {ordinal:,}",
            where=name,
            hint="was changes restored, or is the table of another lake? Restore a newer version, "
            "or move the tables away and let them be made anew",
        )


def _behind(landed: Mapping[StreamKey, tuple[int, int]], progress: TableProgress) -> int:
    """How many rows a table lacks, all rows of a stream having landed without a gap."""
    return sum(max(0, last - progress[key].ordinal) for key, (last, _) in landed.items())


def audit(spark: SparkSession, place: LakePlace, reading: str) -> Comparison:
    """Compare `entities` with another reading of the same logs (TR-548 ST-2.3).

    `reading` is the URL of a lake into which a second consumer of the same streams has landed the
    log from its oldest record; names of consumers need not be the same.
    """
    read = spark.sql(f"SELECT * FROM {LakePlace(reading).table('changes')}")
    changes = spark.sql(f"SELECT * FROM {place.table('changes')}")
    entities = spark.sql(f"SELECT * FROM {place.table('entities')}")
    metadata = read_commit_metadata(spark, place.table("entities"))
    followed = changes if metadata is None else _upto(changes, metadata.progress)
    return compare(_ours(expected(read), followed), entities, logs=(followed, read))


def expected(
    changes: DataFrame, progress: TableProgress | None = None, *, whole: bool = False
) -> DataFrame:
    """Compute the entities from the rows of `changes` up to `progress`, with the sweeps that it
    holds; `whole`: from all rows, and so without `progress`.
    """
    spark = changes.sparkSession
    rows = changes.selectExpr("*", f"{DEFAULT_ID} AS id")
    whole = whole or progress is None
    if progress is not None and not whole:
        rows = _upto(rows, progress)
    partial = changes.where("NOT whole").select("consumer", "stream").distinct().collect()
    changing = [(row.consumer, row.stream) for row in partial]
    composed = [row for key in changing for row in _composed(changes, key, progress, whole=whole)]
    rows = rows.where(f"NOT ({in_any_stream(changing)})")
    rows = _resolved(rows, changing)
    rows.createOrReplaceTempView("instep_all")
    deferred = _late_values(progress)
    merged = f"""(stored, row) -> CASE
        WHEN {_swept("stored", "row.ordinal")} OR NOT coalesce(stored.alive, false)
             OR NOT {row_supersedes("stored", "row")} OR {_OUTDATED}
        THEN CAST(named_struct('alive', NOT row.ends, 'lineage', row.lineage,
            'partition', row.`partition`, 'record_offset', row.record_offset,
            'appended_at', row.appended_at, 'ordinal', row.ordinal, 'marked', row.ordinal,
            'attempt', row.attempt, 'token', row.token) AS {_STATE})
        WHEN row.token = '' AND NOT row.ends
        THEN CAST(named_struct('alive', stored.alive, 'lineage', stored.lineage,
            'partition', stored.`partition`, 'record_offset', stored.record_offset,
            'appended_at', stored.appended_at, 'ordinal', stored.ordinal, 'marked', row.ordinal,
            'attempt', row.attempt, 'token', stored.token) AS {_STATE})
        ELSE stored END"""
    found = spark.sql(f"""
        WITH late AS (SELECT * FROM VALUES {deferred} AS v(consumer, stream, ordinal, made)),
        sweeping AS (
            SELECT consumer, stream, collect_list(named_struct(
                'at', coalesce(made, ordinal), 'attempt', attempt,
                'readable', from_json(body, 'STRUCT<readable: ARRAY<STRING>>').readable)) AS sweeps
            FROM (SELECT * FROM instep_all WHERE kind = 'SWEEP')
            LEFT JOIN late USING (consumer, stream, ordinal)
            GROUP BY consumer, stream
        ), folded AS (
            SELECT {", ".join(IDENTITY)}, max(class) AS known_class, first(sweeps) AS sweeps,
                array_sort(collect_list(named_struct(
                    'ordinal', ordinal, 'lineage', lineage, 'partition', `partition`,
                    'record_offset', record_offset, 'appended_at', appended_at, 'ends', ends,
                    'attempt', attempt, 'token', token))) AS steps
            FROM instep_all LEFT JOIN sweeping USING (consumer, stream)
            WHERE {ENTITY} GROUP BY {", ".join(IDENTITY)}
        ), last AS (
            SELECT *, aggregate(steps, CAST(NULL AS {_STATE}), {merged}) AS stored FROM folded
        )
        SELECT l.consumer, l.stream, l.id, c.key, c.class, c.token, c.body,
            NOT {_swept("l.stored", str(_NEVER - 1), "l.", keeps=True)} AS proven
        FROM last l JOIN instep_all c ON c.consumer = l.consumer AND c.stream = l.stream
             AND c.ordinal = l.stored.ordinal AND c.id = l.id
        WHERE l.stored.alive AND NOT {_swept("l.stored", str(_NEVER - 1), "l.")}
    """)
    if not composed:
        return found
    columns = [pa.array([row[name] for row in composed], pa.string()) for name in _WANTED]
    # Of composed entities only the content is made anew.
    columns.append(pa.nulls(len(composed), pa.bool_()))
    return found.unionByName(
        spark.createDataFrame(pa.Table.from_arrays(columns, names=[*_WANTED, "proven"]))
    )


def _ours(wanted: DataFrame, followed: DataFrame) -> DataFrame:
    """Return what is expected under the names of the consumers that follow these streams here."""
    names = followed.select("stream", "consumer").distinct().withColumnRenamed("consumer", "ours")
    joined = wanted.join(names, ["stream"], "left")
    others = [name for name in _WANTED if name != "consumer"]
    # What another reading could not read says nothing of ours.
    proven = "CAST(NULL AS BOOLEAN) AS proven"
    return joined.selectExpr("coalesce(ours, consumer) AS consumer", *others, proven)


def _upto(rows: DataFrame, progress: TableProgress) -> DataFrame:
    upto = {key: stream_progress.ordinal for key, stream_progress in progress.by_stream.items()}
    rows = rows.join(ordinals(rows.sparkSession, upto=upto), ["consumer", "stream"])
    return rows.where("ordinal <= upto").drop("upto")


def _resolved(rows: DataFrame, changing: Collection[StreamKey]) -> DataFrame:
    """Return `rows` with the ids of their entities, read anew from the first row on (A13)."""
    last = rows.groupBy("consumer", "stream").agg({"ordinal": "max", "uuid": "max"})
    joined = {
        (row.consumer, row.stream): (0, row["max(ordinal)"])
        for row in last.where("`max(uuid)` <> ''").collect()
        if (row.consumer, row.stream) not in changing
    }
    known = {key: Identities() for key in joined}
    found: dict[StreamKey, list[Resolved]] = {key: [] for key in joined}
    for chunk in rows_of(rows, joined):
        for key, own in chunk.items():
            found[key] += resolve(known[key], own)[0]
    return with_resolved(rows, resolved_table(found)) if any(found.values()) else rows


def _composed(
    changes: DataFrame, key: StreamKey, progress: TableProgress | None, *, whole: bool
) -> Iterable[Row]:
    """Compute the entities of a CHANGE_ONLY stream from its first row on."""
    stream_progress = StreamProgress() if progress is None else progress[key]
    if whole:
        last = changes.where(in_stream(key)).selectExpr("max(ordinal) AS ordinal").first()
        ordinal = last.ordinal if last is not None else 0
        stream_progress = msgspec.structs.replace(stream_progress, ordinal=ordinal)
    composer = Composer()
    attempts = changes.where(f"{in_stream(key)} AND kind IN ('ATTEMPT', 'SWEEP')")
    began = attempts.selectExpr("attempt", "unix_micros(committed_at) AS at_us")
    began_us = {row[0]: row[1] for row in began.groupBy("attempt").min("at_us").collect()}
    held = {one.ordinal for one in stream_progress.deferred}
    made = sorted(
        (
            Sweep(key, at, one.attempt, one.readable)
            for one in stream_progress.deferred
            if (at := _made(one)) >= 0
        ),
        key=lambda sweep: sweep.ordinal,
    )

    def make(sweep: Sweep) -> None:
        if sweep.readable != ():
            composer.prune(sweep.attempt, sweep.ordinal, began_us[sweep.attempt])
        composer.remove(sweep.attempt, sweep.readable)

    for row in _rows(changes, key, stream_progress.ordinal):
        while made and made[0].ordinal < row["ordinal"]:
            make(made.pop(0))
        if row["kind"] != ControlKind.SWEEP:
            composer.apply(row)
        elif row["ordinal"] not in held:
            make(Sweep(key, row["ordinal"], row["attempt"], readable_of(row["body"])))
    for sweep in made:
        if sweep.ordinal < stream_progress.ordinal:
            make(sweep)
        else:
            # What is left of the others is stated with the next row.
            composer.remove(sweep.attempt, sweep.readable)
    return composer.rows


def _made(deferred: DeferredSweep) -> int:
    """Return the ordinal at which a held sweep was made; negative: it was not made."""
    return OVERTAKEN if deferred.applied_ordinal is None else deferred.applied_ordinal


def _rows(changes: DataFrame, key: StreamKey, upto: int) -> Iterator[Row]:
    """Records and sweeps of a stream, in order."""
    for begin in range(0, upto, CHUNK_RECORDS):
        end = min(begin + CHUNK_RECORDS, upto)
        yield from chunk_of(changes, key, begin, end, f"({RECORD} OR kind = 'SWEEP')")


def _swept(stored: str, before: str, of: str = "", *, keeps: bool = False) -> str:
    """SQL: a sweep between the last mark of `stored` and ordinal `before` has removed it; with
    `keeps`, has left it without knowing of it (A22).
    """
    readable = f"(s.readable IS NULL OR array_contains(s.readable, {of}known_class))"
    return f"""coalesce(exists({of}sweeps, s -> s.at > {stored}.marked AND s.at <= {before}
        AND s.attempt > {stored}.attempt
        AND {"NOT " if keeps else ""}{readable}), false)"""


def _late_values(progress: TableProgress | None) -> str:
    """The sweeps that were held: when each was made after all, or never."""
    rows = ["('', '', 0L, 0L)"]
    for key, stream_progress in (progress or TableProgress()).by_stream.items():
        for deferred in stream_progress.deferred:
            made = deferred.applied_ordinal
            at = _NEVER if made is None or made < 0 else made
            rows.append(f"({text(key[0])}, {text(key[1])}, {deferred.ordinal}L, {at}L)")
    return ", ".join(rows)


def compare(
    wanted: DataFrame,
    entities: DataFrame,
    logs: tuple[DataFrame, DataFrame] | None = None,
) -> Comparison:
    """Compare `entities` with what is expected: consumer, stream, id, key, class, token, body,
    and whether it is proven; null: that is not known.

    `logs`: rows of `changes` that the two sides were made of, where one may have come further in
    the log of the provider than the other.
    """
    spark = entities.sparkSession
    wanted.createOrReplaceTempView("instep_wanted")
    entities.createOrReplaceTempView("instep_found")
    same = " AND ".join(f"w.{name} = e.{name}" for name in IDENTITY)
    joined = spark.sql(f"""
        SELECT coalesce(e.consumer, w.consumer) AS consumer, coalesce(e.stream, w.stream) AS stream,
            coalesce(e.id, w.id) AS id, coalesce(e.key, w.key) AS key,
            coalesce(e.class, w.class) AS class,
            CASE WHEN e.id IS NULL THEN 'missing' WHEN w.id IS NULL THEN 'bogus'
                 WHEN e.body <=> w.body AND coalesce(e.proven = w.proven, true) THEN 'right'
                 ELSE 'stale' END AS verdict
        FROM instep_wanted w FULL OUTER JOIN instep_found e ON {same}
    """)
    counts = _count(joined)
    examples: list[dict[str, Any]] = []
    if any(verdict != "right" for *_, verdict in counts):
        wrong = joined.where("verdict <> 'right'")
        if logs is not None:
            wrong = _decided(wrong, *logs).persist()
            counts = {key: n for key, n in counts.items() if key[-1] == "right"} | _count(wrong)
        examples = [row.asDict() for row in wrong.limit(_SHOWN).collect()]
        wrong.unpersist()
    totals: Counter[str] = Counter()
    for (*_, verdict), count in counts.items():
        totals[verdict] += count
    return Comparison(
        right=totals["right"],
        stale=totals["stale"],
        bogus=totals["bogus"],
        missing=totals["missing"],
        undecided=totals["undecided"],
        examples=tuple(sorted(examples, key=itemgetter("consumer", "stream", "verdict", "id"))),
        by_stream=tuple(StreamVerdict(*key, count) for key, count in sorted(counts.items())),
    )


def _count(joined: DataFrame) -> dict[tuple[str, str, str], int]:
    found = joined.groupBy("consumer", "stream", "verdict").count().collect()
    return {(row.consumer, row.stream, row.verdict): row["count"] for row in found}


def _decided(wrong: DataFrame, ours: DataFrame, theirs: DataFrame) -> DataFrame:
    """Return what differs, as undecided where one side has a statement about the entity that was
    appended after all that the other side has read of this stream.
    """
    spark = wrong.sparkSession
    wrong.createOrReplaceTempView("instep_wrong")
    doubts: list[str] = []
    for name, rows in (("ours", ours), ("theirs", theirs)):
        stated = rows.where(f"{RECORD} AND token <> ''")
        stated.selectExpr(
            "stream", f"array({DEFAULT_ID}, key) AS names", "appended_at"
        ).createOrReplaceTempView(f"instep_{name}")
    for one, other in (("ours", "theirs"), ("theirs", "ours")):
        doubts.append(f"""
            SELECT stream, id FROM named JOIN (
                SELECT stream, explode(names) AS name, appended_at FROM instep_{one}
            ) USING (stream, name)
            JOIN (SELECT stream, max(appended_at) AS head FROM instep_{other} GROUP BY stream)
                USING (stream)
            WHERE appended_at > head""")
    return spark.sql(f"""
        WITH named AS (
            SELECT DISTINCT stream, id, explode(array(id, key)) AS name FROM instep_wrong
        ), doubted AS ({" UNION ".join(doubts)})
        SELECT w.consumer, stream, id, w.key, w.class,
            CASE WHEN d.doubted THEN 'undecided' ELSE w.verdict END AS verdict
        FROM instep_wrong w LEFT JOIN (SELECT *, true AS doubted FROM doubted) d
            USING (stream, id)
    """)
