"""What every table of the pipeline is: made once, versioned, and moved only together with its
progress.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, ClassVar, Final
from uuid import uuid4

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from instep.errors import SinkError
from instep_spark.error_text import first_line, is_conflict, is_file_gone
from instep_spark.lake.batches.micro_batch import (
    NAMED_ENTITIES,
    PendingRows,
    Segment,
    local_relation,
    materialized,
)
from instep_spark.lake.batches.progress import (
    RECENT_COMMITS,
    Commit,
    CommitMetadata,
    StreamProgress,
    TableContent,
    TableProgress,
    carrying_metadata,
    read_commits,
    read_content,
)
from instep_spark.lake.deletion_vectors.delta_log import FILE_SIZE_PROPERTY, VECTORS_PROPERTY
from instep_spark.lake.merge import Merge, MergeOutcome
from instep_spark.lake.sql.datafusion import rows_among
from instep_spark.lake.sql.dialect import DATAFUSION, SPARK, Dialect
from instep_spark.lake.sql.literals import StreamKey, text
from instep_spark.lake.sql.supersede import ENTITY, IDENTITY
from instep_spark.lake.tables.delta_rs_table import DeltaRsTable, TableDescription
from instep_spark.lake.tables.schema import (
    FEED_PROPERTY,
    VERSION_PROPERTY,
    TableSchema,
)
from instep_spark.lake_version import LAKE_VERSION, check_version
from instep_spark.local_disk import is_on_local_disk
from instep_spark.place import LakePlace, Layout, folder_of
from instep_spark.session import ONE_TASK, configured, is_connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "LakeTable",
    "OvertakenError",
    "has_vectors",
    "rows_of_classes",
    "table_detail",
    "table_exists",
]

_FILE_BYTES: Final = 1 << 20
"""A change writes anew the file that its row is in. Smaller files would make a full scan slower:
each costs a reader some milliseconds."""
_REPEATED_S: Final = 86_400.0
"""Progress is committed again after a day: a log is kept for a month by default, and by some
platforms for a week."""
_MADE_MEANWHILE: Final = ("DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION", "ALREADY_EXISTS")
"""What Delta says where another pipeline makes the table at the same time."""
_CREATE_ATTEMPTS: Final = 10
_CREATE_S: Final = 0.5
"""Between two attempts: the other one has made its folder, and is about to commit."""
_ONE_TASK_BYTES: Final = 32 << 20
"""Up to this size, one task merges few rows into a table: more tasks take more jobs, and leave more
files."""
_MARKED_BYTES: Final = 128 << 20
"""From this size on, `auto` marks rows in deletion vectors where Spark merges."""
_MARKED_BY_DRIVER_BYTES: Final = 32 << 20
"""From this size on, it does so where the driver merges."""


def table_exists(spark: SparkSession, table: str) -> bool:
    """Whether a Delta table is there."""
    from pyspark.errors import AnalysisException  # noqa: PLC0415 — half a second to import

    try:
        _columns(spark, table)
    except AnalysisException:
        return False
    return True


def has_vectors(spark: SparkSession, table: str) -> bool:
    """Whether files of a table may have deletion vectors."""
    return "deletionVectors" in table_detail(spark, table).tableFeatures


def table_detail(spark: SparkSession, table: str) -> Any:
    """What Delta tells of a table as a whole: files, bytes, properties, features."""
    (detail,) = spark.sql(f"DESCRIBE DETAIL {table}").collect()
    return detail


def _columns(spark: SparkSession, table: str) -> list[str]:
    """Return the names of the columns. No job is run: DESCRIBE DETAIL would count the files."""
    return spark.sql(f"SELECT * FROM {table} LIMIT 0").columns


def rows_of_classes(held: pa.Table, classes: Collection[str]) -> pa.Table:
    """Of rows of `changes` those that may state an entity of these classes, and all ends, which may
    name no class.
    """
    of_class = pc.field("class").isin(list(classes))
    return held.filter(of_class | pc.field("ends") | ~pc.field("whole"))


def _is_unsafe(storage_options: Mapping[str, str]) -> bool:
    """Whether two writers may then make the same version of a table."""
    return "AWS_S3_ALLOW_UNSAFE_RENAME" in {name.upper() for name in storage_options}


class OvertakenError(SinkError):
    """A statement was decided on what the table held before another pipeline wrote it."""

    code = "overtaken"
    retriable = True


class LakeTable:
    """One table of the pipeline. Subclasses define how rows of `changes` move it."""

    driver_merges: ClassVar[bool] = True
    """Whether the driver may read and merge its rows; False: all is left to Spark."""
    feeds_others: ClassVar[bool] = False
    """Whether other tables are made from its rows: it is refused where another writer has altered
    some, because they would be made wrong."""

    def __init__(self, table: TableSchema, place: LakePlace) -> None:
        self.name = table.name
        self.table = table
        self.sql = place.table(table.name)
        """The table, as SQL names it."""
        self.progress = self.durable = TableProgress()
        self._commits = 0
        """How many of the pipeline's commits the table has."""
        self._known_version = 0
        """See `CommitMetadata.known_version`."""
        self._altered = False
        """See `CommitMetadata.altered`."""
        self._committed_s = time.time()
        self._is_empty = False
        """Whether the table is known to have no row."""
        self._size_bytes: int | None = None
        """Of its files, when it was last looked how far it has come; None: it was not asked."""
        self.by_driver: DeltaRsTable | None = None
        """What reads and merges few rows, where the driver can do that itself."""
        self._properties: dict[str, str] = {}
        """Those of the table when it was opened; empty for one that was made then."""
        self._where = place.location(table.name)
        self._clause = place.clause(table.name)

    def move_to(self, url: str) -> None:
        """Stand for a table in another folder, as long as it is not open."""
        self.sql, self._where, self._clause = f"delta.`{url}`", url, ""

    def open(self, spark: SparkSession, *, to_replace: bool = False) -> None:
        """Make the table if it is not there. `to_replace`: its rows are about to be replaced, so it
        need not be known how far they have come.

        Raises `StoreVersionError` for one of another version, and `SinkError` for one that lacks a
        column, or that has rows of which no commit tells how far they have come (L2).
        """
        described = None
        if self.by_driver is not None and not self._clause:
            # A job of Spark or two for each table, only to begin, would cost more than a batch.
            described = self.by_driver.described()
        if described is None:
            described = self._described_by(spark)
        if described is None:
            self._create(spark)
            found = self._described_by(spark) if self._clause else None
            if found is None:
                # Nothing to look at. Where another pipeline made it, too, one of both is overtaken
                # by its first commit. At a LOCATION, a table may be that the catalogue forgot.
                self.progress = self.durable = TableProgress()
                self._commits = self._known_version = 0
                self._altered, self._is_empty = False, True
                self._properties = {}
                return
            described = found
        self._is_empty, self._size_bytes = False, None
        self._properties = dict(described.properties)
        check_version(self._properties.get(VERSION_PROPERTY, ""), self._where)
        self._refuse_missing_columns(described.columns)
        content = self._content(spark)
        while content.replaced_at is not None:
            # What was written since was decided on what is there no more: it is undone.
            spark.sql(f"RESTORE TABLE {self.sql} TO VERSION AS OF {content.replaced_at}")
            content = self._content(spark)
        if content.altered and self.feeds_others:
            raise SinkError(
                "another writer has altered rows of the table, and other tables are made from it",
                where=self._where,
                hint=f"make it again from changes: {self._making_again()}",
            )
        metadata = content.metadata
        if metadata is None:
            if not to_replace:
                self._refuse_rows(spark)
            metadata = CommitMetadata(
                TableProgress(), content.commits, content.version, time.time()
            )
        self.progress = self.durable = metadata.progress
        self._commits, self._committed_s = metadata.number, metadata.committed_s
        self._known_version = metadata.known_version or 0
        self._altered = content.altered

    def _create(self, spark: SparkSession) -> None:
        parted = ", ".join(f"`{name}`" for name in self.table.partitioned_by)
        statement = (
            f"CREATE TABLE IF NOT EXISTS {self.sql} ({self.table.ddl()}) USING delta "
            + (f"PARTITIONED BY ({parted}) " if parted else "")
            + self._clause
            + f"COMMENT {self.table.comment} "
            f"TBLPROPERTIES ('{VERSION_PROPERTY}' = '{LAKE_VERSION}', "
            f"'{VECTORS_PROPERTY}' = 'false', "
            f"'delta.dataSkippingStatsColumns' = '{self._skipping()}'"
            f"{self.table.constraint_properties})"
        )
        for attempts_left in reversed(range(_CREATE_ATTEMPTS)):
            try:
                spark.sql(statement)
                # Delta is content with the folder that another pipeline has made for it.
                if self._is_there(spark):
                    return
            except Exception as error:
                made = any(word in str(error) for word in _MADE_MEANWHILE) or is_conflict(error)
                if attempts_left == 0 or not made:
                    raise
            time.sleep(_CREATE_S)

    def _content(self, spark: SparkSession) -> TableContent:
        """What the commits of the table tell of its content."""

        def read(limit: int | None) -> list[Commit]:
            found = [] if self.by_driver is None else self.by_driver.commits(limit)
            # What is not for the driver has no commit there.
            return found or read_commits(spark, self.sql, limit)

        return read_content(read)

    def is_as_known(self, spark: SparkSession) -> bool:
        """Whether the table holds what it held after its last commit that is known here: nobody has
        restored it, removed it or made it anew, also not while the last commits were made; nor, of
        one that feeds others, altered rows.
        """
        self._size_bytes = None
        by_driver = self.by_driver is not None and self.by_driver.described() is not None
        if not by_driver and not table_exists(spark, self.sql):
            return False
        content = self._content(spark)
        metadata = content.metadata
        if content.altered and self.feeds_others:
            return False
        self._altered = content.altered
        if metadata is not None:
            self._known_version = metadata.known_version or 0
        known = TableProgress() if metadata is None else metadata.progress
        return known.by_stream == self.durable.by_stream

    def _refuse_rows(self, spark: SparkSession) -> None:
        """Rows of unknown progress would be made a second time."""
        rows = None if self.by_driver is None else self.by_driver.query("SELECT 1 FROM t LIMIT 1")
        has_rows = (
            rows.num_rows > 0
            if rows is not None
            else bool(spark.sql(f"SELECT 1 FROM {self.sql} LIMIT 1").collect())
        )
        if has_rows:
            raise SinkError(
                "the table has rows, and none of its commits tells how far they have come: it was "
                "cloned, restored to a time, or its log has expired",
                where=self._where,
                hint="restore it to a version of the pipeline, or make it again from changes: "
                + self._making_again(),
            )

    def _making_again(self) -> str:
        """How a user makes the table again from `changes`."""
        return f"instep lake rebuild --tables {self.name}"

    def _skipping(self) -> str:
        # Statistics of bodies would cost more than they save.
        names = {column.name for column in self.table.columns} - {"body", "envelope", "state"}
        wanted = (
            *("consumer", "stream", "id", "ordinal", "attempt", "valid_to", "cleared_at"),
            # What readers ask for.
            *("class", "valid_from", "raised_at", "node_uuid", "minute", "delivered_at"),
        )
        return ",".join(name for name in wanted if name in names)

    def use_driver(
        self,
        spark: SparkSession,
        storage_options: Mapping[str, str] | None = None,
        *,
        proven: bool = False,
    ) -> None:
        """Let the driver read and merge few rows, where its files are those of Spark; `proven`:
        those of another table of the lake are. In an object store they are, and `storage_options`
        let delta-rs reach it.
        """
        if self.by_driver is not None or not self.driver_merges:
            return
        if not self._where.startswith("file:"):
            if storage_options and "://" in self._where and not _is_unsafe(storage_options):
                self.by_driver = DeltaRsTable(self._where, storage_options)
            return
        local = not is_connect(spark) and (spark.sparkContext.master or "").startswith("local")
        if local or (proven and self._is_ours()) or self.is_seen_here(spark):
            self.by_driver = DeltaRsTable(self._where)

    def _is_ours(self) -> bool:
        """Whether the folder is on a disk of this machine, because a network may show old files for
        a while; and of this user, so that both may write in it.
        """
        folder = folder_of(self._where)
        try:
            return folder.stat().st_uid == os.geteuid() and is_on_local_disk(folder)
        except OSError:
            return False

    def is_seen_here(self, spark: SparkSession) -> bool:
        """Whether the folder of the table here is the one that a cluster or a server reads: it is
        ours, and what is written here, Spark finds there.
        """
        from pyspark.errors import PySparkException  # noqa: PLC0415 — half a second to import

        if not self._is_ours():
            return False
        proof = folder_of(self._where) / f"{uuid4()}.proof"
        try:
            proof.write_text(uuid4().hex)
        except OSError:
            return False
        try:
            found = spark.sql(f"SELECT * FROM text.`{proof.as_uri()}`").collect()
            return [row[0] for row in found] == [proof.read_text()]
        except PySparkException:
            return False
        finally:
            proof.unlink(missing_ok=True)

    def lay_out(self, spark: SparkSession, layout: Layout) -> None:
        """Choose what a change does to the files, from the next commit on. Rows are marked only
        where that was asked for (L7).
        """
        marking = self._properties.get(VECTORS_PROPERTY) == "true"
        from_bytes = _MARKED_BYTES if self.by_driver is None else _MARKED_BY_DRIVER_BYTES
        wanted = layout == "merge-on-read" or (
            layout == "auto"
            and (marking or table_detail(spark, self.sql).sizeInBytes >= from_bytes)
        )
        if self._properties.get(FEED_PROPERTY) == "true":
            # Of the feed of files with deletion vectors, delta-rs loses changes.
            wanted = False
        if wanted != marking:
            value = "true" if wanted else "false"
            spark.sql(
                f"ALTER TABLE {self.sql} SET TBLPROPERTIES ('{VECTORS_PROPERTY}' = '{value}')"
            )
            self._properties[VECTORS_PROPERTY] = value
        if self.by_driver is not None and FILE_SIZE_PROPERTY not in self._properties:
            self.by_driver.set_property(FILE_SIZE_PROPERTY, str(_FILE_BYTES))

    def _is_there(self, spark: SparkSession) -> bool:
        if self.by_driver is not None and not self._clause:
            return self.by_driver.described() is not None
        return table_exists(spark, self.sql)

    def _described_by(self, spark: SparkSession) -> TableDescription | None:
        """What Spark tells of the table. None: it is not there."""
        from pyspark.errors import AnalysisException  # noqa: PLC0415 — half a second to import

        try:
            columns = _columns(spark, self.sql)
        except AnalysisException:
            return None
        rows: Any = spark.sql(f"SHOW TBLPROPERTIES {self.sql}").collect()
        return TableDescription({row.key: row.value for row in rows}, columns)

    def _refuse_missing_columns(self, found: Collection[str]) -> None:
        missing = [column.name for column in self.table.columns if column.name not in found]
        if missing:
            raise SinkError(
                f"the table has no column {missing[0]}: it was dropped or renamed",
                where=self._where,
                hint="give the column its name again; or move the table away, and run: it is made "
                "again from changes",
            )

    def check_readable(self, spark: SparkSession) -> None:
        """Raise `SinkError` where the table is there, and lacks a column or a file."""
        described = self._described_by(spark)
        if described is None:
            return
        self._refuse_missing_columns(described.columns)
        try:
            # No statistics tell this, so that each file is opened.
            spark.sql(f"SELECT count(*) FROM {self.sql} WHERE length(consumer) < 0").collect()
        except Exception as error:
            if not is_file_gone(error):
                raise
            raise SinkError(
                f"a file of the table is gone: {first_line(error)}",
                where=self._where,
                hint=f"make it again from changes: {self._making_again()}",
            ) from error

    def clear(self, spark: SparkSession) -> None:
        """Remove all rows, and begin from the first row of `changes`."""
        if not self.commit(spark, TableProgress(), f"DELETE FROM {self.sql}"):
            # Delta keeps no transaction of a DELETE that removes nothing.
            self.commit_progress(spark, TableProgress())

    def replace_by(self, spark: SparkSession, other: LakeTable) -> None:
        """Take the rows and the progress of another table of this kind, in one commit.

        Raises `OvertakenError` where another pipeline has written the table since it was opened.
        """
        names = ", ".join(f"`{column.name}`" for column in self.table.columns)
        metadata = CommitMetadata(other.progress, self._commits + 1)
        with carrying_metadata(spark, metadata):
            spark.sql(f"INSERT OVERWRITE {self.sql} ({names}) SELECT {names} FROM {other.sql}")
        if not any(
            one.operation == "WRITE" and one.user_metadata == metadata.encode()
            for one in read_commits(spark, self.sql, RECENT_COMMITS)
        ):
            raise self._overtaken()
        self.progress = self.durable = other.progress
        self._commits, self._altered = metadata.number, False

    def _overtaken(self) -> OvertakenError:
        return OvertakenError(
            "another pipeline has written the table meanwhile",
            where=self._where,
            hint="let one pipeline at a time run on a lake",
        )

    def concerned(self, held: pa.Table) -> pa.Table:
        """What the table needs of rows of `changes` that the driver holds: the rest would be handed
        to Spark for nothing.
        """
        return held

    def stored_of(
        self,
        pending: PendingRows,
        segment: Segment,
        queries: Callable[[str, Callable[[str], str], Dialect], Sequence[str]],
    ) -> list[DataFrame]:
        """What queries find of the entities that the segment names. `queries` makes them, of SQL
        for the table, of what leaves of a relation the rows of the entities, and for an engine.
        Where the rows of the segment are held, no table is read any more for what follows.
        """
        spark = segment.rows.sparkSession
        # Composed rows may have other ids than those that have landed.
        ids = None if self.progress.changing() & segment.last.keys() else pending.ids()
        named = None if ids is None or self.by_driver is None else rows_among("id", ids)
        if self.by_driver is not None and named is not None:
            found = [self.by_driver.query(sql) for sql in queries("t", named, DATAFUSION)]
            known = [one for one in found if one is not None]
            if len(known) == len(found):
                return [local_relation(spark, one) for one in known]
        if ids is not None and len(ids) <= NAMED_ENTITIES:
            # Names in a condition need no join, which Spark would run apart.
            chosen = f"WHERE id IN ({', '.join(map(text, ids)) or 'NULL'})"
        else:
            rows = segment.rows.where(ENTITY).select(*IDENTITY).distinct()
            rows.createOrReplaceTempView("instep_named")
            chosen = "LEFT SEMI JOIN instep_named USING (consumer, stream, id)"
        made = queries(self.sql, lambda relation: f"{relation} {chosen}", SPARK)
        stored = list(map(spark.sql, made))
        # One look at the table for all that follows.
        return list(map(materialized, stored)) if pending.small else stored

    def read(self, spark: SparkSession) -> DataFrame:
        """The table as it is now."""
        return spark.sql(f"SELECT * FROM {self.sql}")

    def commit(self, spark: SparkSession, progress: TableProgress, statement: str) -> int:
        """Run a MERGE, UPDATE or DELETE; `progress` is durable with it. How many rows it changed.

        Raises `OvertakenError` where another pipeline has written the table since it was opened.
        """
        if self.by_driver is not None and self.by_driver.was_replaced():
            raise self._overtaken()
        metadata = self._next(progress)
        with carrying_metadata(spark, metadata):
            result = spark.sql(statement).collect()
        if not result:
            # Delta has passed over the statement: there is a commit of this number.
            raise self._overtaken()
        self._committed(metadata)
        return int(result[0].num_affected_rows)

    def merge(
        self,
        spark: SparkSession,
        progress: TableProgress,
        merge: Merge,
        rows: DataFrame | pa.Table,
        pending: PendingRows | None = None,
    ) -> None:
        """Merge `rows`; `progress` is durable with it, or with the next commit where no row
        changes. `pending`: the rows that they are built from; where these are small, the driver
        holds what it merges.

        Raises `OvertakenError` as `commit` does.
        """
        if isinstance(rows, pa.Table):
            held = rows.select(merge.source_columns(rows.column_names))
        else:
            rows = rows.select(merge.source_columns(rows.columns))
            held = pending.collected(rows) if pending is not None and pending.small else None
        if held is not None:
            if self.by_driver is not None:
                metadata = self._next(progress)
                outcome = self.by_driver.merge(merge, held, metadata)
                if outcome is MergeOutcome.OVERTAKEN:
                    raise self._overtaken()
                if outcome is MergeOutcome.MERGED:
                    self._committed(metadata)
                    return
                if outcome is MergeOutcome.UNCHANGED:
                    # Durable with the next commit; read again it changes nothing.
                    self.progress = progress
                    return
            rows = local_relation(spark, held)
        rows.createOrReplaceTempView("instep_merged")
        statement = merge.sql(self.sql, "instep_merged", into_empty=self._is_empty)
        few = held is not None and self._is_small(spark)
        with configured(spark, ONE_TASK) if few else nullcontext():
            self.commit(spark, progress, statement)

    def _is_small(self, spark: SparkSession) -> bool:
        """Whether one task may read and write all of the table."""
        if self._size_bytes is None:
            self._size_bytes = int(table_detail(spark, self.sql).sizeInBytes)
        return self._size_bytes <= _ONE_TASK_BYTES

    def _next(self, progress: TableProgress) -> CommitMetadata:
        """What the next commit carries."""
        return CommitMetadata(
            progress, self._commits + 1, self._known_version, altered=self._altered
        )

    def _committed(self, metadata: CommitMetadata) -> None:
        self.progress = self.durable = metadata.progress
        self._commits, self._committed_s = metadata.number, time.time()
        self._is_empty = False

    def settle(self, spark: SparkSession) -> None:
        """Make durable that rows which do not concern the table lie behind it; and, while there are
        none, that nothing has changed: commits of others may take the last one from the log.
        """
        moved = self.progress.by_stream != self.durable.by_stream
        old = time.time() - self._committed_s >= _REPEATED_S
        if moved or (old and self.durable.by_stream):
            self.commit_progress(spark, self.progress)

    def commit_progress(self, spark: SparkSession, progress: TableProgress) -> None:
        """Make progress durable that changes no row."""
        metadata = self._next(progress)
        outcome = MergeOutcome.UNFIT
        if self.by_driver is not None:
            outcome = self.by_driver.commit_metadata(metadata)
        if outcome is MergeOutcome.OVERTAKEN:
            raise self._overtaken()
        if outcome is MergeOutcome.MERGED:
            was_empty = self._is_empty
            self._committed(metadata)
            self._is_empty = was_empty
            return
        self.commit(spark, progress, f"UPDATE {self.sql} SET consumer = consumer WHERE false")

    def after(self, segment: Segment, by_uuid: set[StreamKey] | None = None) -> TableProgress:
        """The progress when this segment is written."""
        moved: dict[StreamKey, StreamProgress] = {}
        for key, ordinal in segment.last.items():
            stream_progress = self.progress[key]
            joined = not stream_progress.by_uuid and key in (by_uuid or ())
            moved[key] = msgspec.structs.replace(
                stream_progress,
                ordinal=ordinal,
                by_uuid=stream_progress.by_uuid or joined,
                seen=segment.seen.get(key, stream_progress.seen),
            )
        return self.progress.moved(moved)
