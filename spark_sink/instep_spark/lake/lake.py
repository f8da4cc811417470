"""`Lake`: what a user's Spark job and the command line call.

    Lake("file:///data/lake", spark).run(once=True)

A run is driven by ordinals, on one machine, on a cluster and over Spark Connect: it looks which
rows of `changes` some table lacks, and applies them part by part. No checkpoint of a query can be
lost, or know better than the tables (L5).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from instep.errors import ConfigurationError, InstepError, SinkError, StoreUnavailableError
from instep_spark.error_text import disk_full, first_line, is_conflict
from instep_spark.lake.batches.progress import carrying_metadata, read_commit_metadata
from instep_spark.lake.deletion_vectors.delta_log import FILE_SIZE_PROPERTY, VECTORS_PROPERTY
from instep_spark.lake.landed import LandedRows
from instep_spark.lake.pipeline import (
    FOLLOWERS,
    LakeSettings,
    Pipeline,
    PipelineStep,
)
from instep_spark.lake.rebuild import compare_altered, rebuild, rebuilt_at
from instep_spark.lake.reconciliation import ReconciliationTable
from instep_spark.lake.sql.literals import StreamKey, text
from instep_spark.lake.tables.base import has_vectors, table_detail, table_exists
from instep_spark.lake.tables.messages import MessagesTable
from instep_spark.lake.tables.schema import FEED_PROPERTY, LAKE_TABLES
from instep_spark.lake.tables.sequence_numbers import SequenceNumbersTable
from instep_spark.lake.trigger_interval import next_interval_s, shared_out
from instep_spark.lake.upkeep import VACUUMED_PROPERTY, TableFiles, Upkeep
from instep_spark.lake.verify import Comparison, audit, refuse_without_changes, verify
from instep_spark.landing_schema import TABLES
from instep_spark.object_store import missing_connector
from instep_spark.place import LakePlace
from instep_spark.session import check_session, configured, is_connect, is_gone, own_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Lake", "RunProgress"]

_BATCH_RECORDS: Final = 500_000
"""Rows of a micro-batch, of all streams together."""
_INTERVAL_S: Final = 2.0
_LOOK_S: Final = 30.0
"""How often a run that waits for rows looks whether somebody has restored or removed a table;
before each micro-batch, it looks anyway."""
_SETTLE_S: Final = 60.0
_PROGRESS_S: Final = 10.0
_RETAIN_HOURS: Final = 168.0
"""Delta refuses to delete files of newer versions, unless it is told to."""
_FILE_BYTES: Final = 64 << 20
"""Of a table that no change writes anew file by file, or only with Spark."""
_LARGE_BYTES: Final = 1 << 30
"""A table of more bytes is one that Spark merges, and would have too many small files."""
_CLUSTERED_BYTES: Final = 128 << 20
"""From this size on, a table is written in files that readers can pass over."""
_MOST_CLUSTERED_BYTES: Final = 4 << 30
"""Up to this size, its rows are clustered. That writes the whole table, and landed rows wait."""
_CLUSTERING: Final = {
    # A table whose statistics a user has chosen is joined all the same.
    "spark.databricks.delta.optimize.zorder.checkStatsCollection.enabled": "false",
}


class RunProgress(msgspec.Struct, frozen=True):
    """The report of a run, now and then and at its end."""

    rows_behind: int
    """Rows of `changes` that some table lacks."""
    next_run_s: float | None
    """Seconds until rows are looked for again; zero: at once; None: the run ends."""
    upkeep_s: float = 0.0
    """Seconds that the run has spent on looking after the tables …"""
    files_joined: int = 0
    """… and the small files that it has joined."""
    audited: Comparison | None = None
    """What the last audit of the run has found."""
    audit_error: str = ""
    """Why an audit could not be made since; empty: none failed."""


def _file_bytes(detail: Any) -> int:
    """How large the files of a table should be, of which Delta tells this detail."""
    stated = str(detail.properties.get(FILE_SIZE_PROPERTY, ""))
    marks = detail.properties.get(VECTORS_PROPERTY) == "true"
    small = not marks and detail.sizeInBytes <= _LARGE_BYTES
    return int(stated) if small and stated.isdecimal() else _FILE_BYTES


@contextmanager
def _spending(upkeep: Upkeep) -> Iterator[None]:
    """Count the time that this takes as upkeep."""
    begun_s = time.monotonic()
    yield
    upkeep.spent(time.monotonic() - begun_s)


class Lake:
    """The tables of a lake. Raises `SinkError` where `changes` is not there, or not as needed."""

    def __init__(  # noqa: PLR0913 - what a user can choose
        self,
        url: str,
        spark: SparkSession,
        *,
        database: str = "",
        managed: bool = False,
        tables: Collection[str] = FOLLOWERS,
        settings: LakeSettings | None = None,
        storage_options: Mapping[str, str] | None = None,
        report: Callable[[PipelineStep], None] | None = None,
        report_run: Callable[[RunProgress], None] | None = None,
    ) -> None:
        """`url`, `database`, `managed`, `storage_options`: as in the sink's options; `tables`:
        those to follow `entities`, among them `typed_node` and others of one class each; `report`
        is called for each table that a micro-batch has moved, `report_run` every ten seconds in
        which there were micro-batches, and at the end.
        """
        self.url = url.rstrip("/")
        self.spark = own_session(check_session(spark))
        """A session of its own: nothing is left in the one that was given."""
        self._clock = time.monotonic
        self._settled_s = self._clock()
        self._names = tuple(tables)
        self._settings = settings or LakeSettings()
        self._upkeep = Upkeep(self._settings.upkeep_share, self._clock())
        self._report_run = report_run
        self._report_lags: Callable[[Mapping[str, int]], None] | None = None
        self._reported_s = self._clock()
        self._audited: Comparison | None = None
        self._audit_error = ""
        self._audited_s = 0.0
        """When it began, in seconds since 1970."""
        self._place = LakePlace(self.url, database, managed)
        self._report_step = report
        self._batch_rows = 0
        """Rows that the micro-batch has brought to `entities`."""
        self._pipeline = Pipeline(
            self._place,
            tables=tables,
            settings=self._settings,
            storage_options=storage_options,
            report=self._step,
        )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise the errors of Spark as errors of instep."""
        from pyspark.errors import PySparkException  # noqa: PLC0415 — half a second to import

        try:
            yield
            if self.is_connect:
                self._drop_views()
        except InstepError:
            raise
        except Exception as error:
            if is_gone(error):
                raise StoreUnavailableError(
                    "Spark has gone away",
                    where=self.url,
                    hint="run it again: nothing is torn, and it goes on where the tables stand",
                ) from error
            package = missing_connector(error, self.url)
            if package is not None:
                raise ConfigurationError(
                    f"Spark has no connector for {self.url}: {package} is missing",
                    where="spark",
                    hint=f'add it, with Delta: spark = {{ packages = ["io.delta:delta-spark_2.13:'
                    f'4.0.1", "{package}"] }}; or its jars to spark.jars',
                ) from error
            if not isinstance(error, PySparkException):
                raise
            if (full := disk_full(error, self.url)) is not None:
                raise full from error
            raise SinkError(
                f"Spark: {first_line(error)}",
                where=self.url,
                hint="nothing is torn: what was not committed is done when it is run again",
                retriable=True,
            ) from error

    def _drop_views(self) -> None:
        """Drop the temporary views of the pipeline from a session that is not its own."""
        for view in self.spark.sql("SHOW VIEWS LIKE 'instep_*'").where("isTemporary").collect():
            self.spark.catalog.dropTempView(view.viewName)

    def run(
        self,
        *,
        once: bool = False,
        stop: threading.Event | None = None,
        interval_s: float = _INTERVAL_S,
        report_lags: Callable[[Mapping[str, int]], None] | None = None,
    ) -> None:
        """Bring the tables up to `changes`; `once`: up to what has landed when it begins, and end;
        else go on until `stop` is set. What a micro-batch has begun is done before it ends.
        `report_lags` is called at each look at what has landed, with the ordinals that each table
        lacks.

        Raises `SinkError` where rows cannot be read that a table lacks; and for `once`, where it
        was stopped before it had them.
        """
        stop = stop or threading.Event()
        self._report_lags = report_lags
        self._upkeep = Upkeep(self._settings.upkeep_share, self._clock())
        with self._errors():
            self._await_changes(once=once, stop=stop)
            if stop.is_set() and not once:
                return
            self._pipeline.open(self.spark)
            self._pipeline.release(self.spark)
            self._audited_s = self._last_audit_s()
            self._audited, self._audit_error = None, ""
            self._keep_up(once=once, stop=stop, interval_s=interval_s)
            self._pipeline.settle(self.spark)
            self._report_progress(None)
            if once and stop.is_set():
                self._refuse_rows_behind()

    def _refuse_rows_behind(self) -> None:
        behind = self._pipeline.rows_behind(self.spark)
        if behind:
            raise SinkError(
                f"the run was stopped with {behind:,} rows behind",
                where=self.url,
                hint="run it again: it goes on where the tables stand",
                retriable=True,
            )

    def _step(self, step: PipelineStep) -> None:
        if step.table == "entities":
            self._batch_rows += step.rows
        if self._report_step is not None:
            self._report_step(step)

    def _keep_up(self, *, once: bool, stop: threading.Event, interval_s: float) -> None:
        """Apply what has landed, until `stop` is set; `once`: what there is now."""
        landed = LandedRows(self.spark, self._pipeline, self._clock)
        looked_s = self._clock()
        opened = True  # each table was just read; what is restored since, the next look finds (L2)
        while not stop.is_set():
            begun_s = self._clock()
            self._batch_rows = 0
            ends = landed.ends()
            self._tell_lags(ends)
            while (self._lags(ends) or begun_s - looked_s >= _LOOK_S) and not stop.is_set():
                begun_s = looked_s = self._clock()
                if not opened and self._pipeline.look_after_others(self.spark):
                    landed.forget()
                    ends = landed.ends()
                opened = False
                if not self._lags(ends):
                    break
                self._apply_next(ends)
                self._tell_lags(ends)
                pause_s = 0.0 if once or self._lags(ends) else self._pause_s(begun_s, interval_s)
                if self._clock() - self._reported_s >= _PROGRESS_S:
                    self._report_progress(pause_s)
            opened = False
            self._pipeline.release(self.spark)
            self._settle_in_time()
            if once:
                if not self._pipeline.look_after_others(self.spark):
                    return
                # Somebody has restored a table while the last rows were merged.
                landed.forget()
                continue
            stop.wait(self._pause_s(begun_s, interval_s))

    def _tell_lags(self, ends: Mapping[StreamKey, int]) -> None:
        if self._report_lags is not None:
            self._report_lags(self._pipeline.lacks(ends))

    def _apply_next(self, ends: Mapping[StreamKey, int]) -> None:
        """Apply a bounded number of the rows up to these ordinals that some table lacks."""
        lags = self._lags(ends)
        taken = shared_out(lags, _BATCH_RECORDS)
        upto = {key: ends[key] - lags[key] + rows for key, rows in taken.items()}
        self._batch_rows = 0
        self._pipeline.apply(self.spark, upto)
        self._upkeep.batch_done()
        self._look_after()

    def _lags(self, ends: Mapping[StreamKey, int]) -> dict[StreamKey, int]:
        """How many rows of these streams some table lacks, up to these ordinals."""
        done = self._pipeline.done()
        lags = {key: last - done.get(key, 0) for key, last in ends.items()}
        return {key: rows for key, rows in lags.items() if rows > 0}

    def _pause_s(self, begun_s: float, interval_s: float) -> float:
        """Seconds to wait before the next micro-batch; the last one was begun at `begun_s`."""
        took_s = self._clock() - begun_s
        return max(0.0, next_interval_s(interval_s, took_s, self._batch_rows) - took_s)

    def _report_progress(self, next_run_s: float | None) -> None:
        if self._report_run is not None:
            behind = self._pipeline.rows_behind(self.spark)
            upkeep = self._upkeep
            self._report_run(
                RunProgress(
                    *(behind, next_run_s, upkeep.spent_s, upkeep.files),
                    *(self._audited, self._audit_error),
                )
            )
        self._reported_s = self._clock()

    @property
    def is_connect(self) -> bool:
        """Whether the session is one of Spark Connect."""
        return is_connect(self.spark)

    def _await_changes(self, *, once: bool, stop: threading.Event) -> None:
        while not self._pipeline.has_changes(self.spark):
            if once:
                refuse_without_changes(self.spark, self._place)
            if stop.wait(_INTERVAL_S):
                return

    def _settle_in_time(self) -> None:
        """Commit progress now and then, also of tables that nothing concerns: the log of a table
        forgets its commits.
        """
        now_s = self._clock()
        if now_s - self._settled_s >= _SETTLE_S:
            self._pipeline.settle(self.spark)
            self._settled_s = now_s
        self._look_after()

    def _look_after(self) -> None:
        """Do what is due for the tables, within its share of the run. One thing at a time: landed
        rows wait meanwhile.
        """
        upkeep = self._upkeep
        over = time.time() - self._audited_s >= self._settings.audit_interval_s
        if self._settings.audit_reading and over:
            upkeep.audit_due()
        if upkeep.looks(self._clock()):
            with _spending(upkeep):
                self._count_files()
        task = upkeep.next(self._clock())
        if task is None:
            return
        begun_s, files = self._clock(), 0
        try:
            if task.what == "optimize":
                files = self._optimize(task.table)
            elif task.what == "vacuum":
                self._vacuum(task.table, _RETAIN_HOURS)
            elif self._pipeline.rows_behind(self.spark):
                # Rows that the tables still lack would count as missing.
                upkeep.postpone(task, self._clock() - begun_s)
                return
            else:
                self._try_audit()
        except Exception as error:
            if not is_conflict(error):
                raise  # else somebody does the same; the next time will do
        upkeep.done(task, self._clock() - begun_s, files)
        if task.what == "vacuum" and not upkeep.waits_for("vacuum"):
            with _spending(upkeep):
                self._note_vacuumed()

    def _count_files(self) -> None:
        """Tell what there may be to do."""
        tables = {target.name: target.sql for target in self._pipeline.targets}
        details = {name: table_detail(self.spark, table) for name, table in tables.items()}
        self._upkeep.counted(
            {
                name: TableFiles(one.numFiles, one.sizeInBytes, _file_bytes(one))
                for name, one in details.items()
            }
        )
        entities = details["entities"]
        at_s = entities.properties.get(VACUUMED_PROPERTY) or entities.createdAt.timestamp()
        self._upkeep.vacuumed(float(at_s), time.time(), [*self._landing(), *self._tables()])

    def _note_vacuumed(self) -> None:
        table = self._place.table("entities")
        with self._keeping(table):
            self.spark.sql(
                f"ALTER TABLE {table} "
                f"SET TBLPROPERTIES ('{VACUUMED_PROPERTY}' = '{time.time():.0f}')"
            )

    def take_messages(self, store: str) -> int:
        """Append to `messages` what the SQL store at this URL has delivered since the last time;
        how many messages that were.
        """
        table = MessagesTable(self._place)
        with self._errors():
            table.open(self.spark)
            return asyncio.run(table.take(self.spark, store))

    def take_numbers(self, store: str) -> int:
        """Copy to `sequence_numbers` what the SQL store at this URL says of each number; how many
        ranges those are.
        """
        table = SequenceNumbersTable(self._place)
        with self._errors():
            table.open(self.spark)
            return asyncio.run(table.take(self.spark, store))

    # -- maintenance -----------------------------------------------------------------------------

    def verify(self) -> Comparison:
        """Recompute `entities` from all of `changes` and compare; and tell which of the `tables`
        of this `Lake` lack rows. One whose rows another writer has altered is made again in
        `_rebuild`, and compared row by row.

        Raises `SinkError` where `changes` has lost its first rows: then nothing can be recomputed;
        and where a table lacks a column or a file.
        """
        with self._errors():
            for table in self._pipeline.all_tables:
                table.check_readable(self.spark)
            found = verify(self.spark, self._place, self._names)
            return compare_altered(self.spark, self._place, found)

    def audit(self, reading: str) -> Comparison:
        """Compare `entities` with another reading of the logs, landed in the lake `reading`. The
        result is appended to `reconciliation`.
        """
        with self._errors():
            return self._audit(reading)

    def _audit(self, reading: str) -> Comparison:
        at = datetime.now(UTC)
        found = audit(self.spark, self._place, reading)
        table = ReconciliationTable(self._place)
        table.open(self.spark)
        table.append(self.spark, found, at=at, against=reading)
        self._audited, self._audit_error, self._audited_s = found, "", at.timestamp()
        return found

    def _try_audit(self) -> None:
        """Audit against the reading of the settings. The run goes on where that cannot be done."""
        try:
            self._audit(self._settings.audit_reading)
        except Exception as error:
            if is_gone(error):
                raise
            self._audit_error, self._audited_s = first_line(error), time.time()

    def _last_audit_s(self) -> float:
        """When the last audit against the reading of the settings began; 0: none has."""
        reading = self._settings.audit_reading
        kept = self._place.table("reconciliation")
        if not reading or not table_exists(self.spark, kept):
            return 0.0
        (last,) = self.spark.sql(
            f"SELECT unix_micros(max(at)) / 1e6D AS at_s FROM {kept} "
            f"WHERE against = {text(reading)}"
        ).collect()
        return float(last.at_s or 0.0)

    def rebuild(self) -> dict[str, int]:
        """Make the `tables` of this `Lake` again from `changes`, as far as `entities` has come
        (L3). Returns by table the number of its rows.

        Each is made in `_rebuild` beside the others, checked, and takes the place of the old one in
        one commit; readers see the old rows until then. A pipeline that runs meanwhile goes on from
        the new ones. Interrupted, it leaves the old table as it was.

        Raises `SinkError` where `changes` has lost its first rows, or what was made is not right.
        """
        with self._errors():
            return rebuild(self.spark, self._place, self._names)

    def optimize(self) -> dict[str, int]:
        """Compact small files, and cluster large tables for readers. Returns by table how many
        files were removed.
        """
        removed: dict[str, int] = {}
        for name in self._tables():
            with self._errors():
                removed[name] = self._optimize(name)
        return removed

    def _optimize(self, name: str) -> int:
        table = self._place.table(name)
        detail = table_detail(self.spark, table)
        large = detail.sizeInBytes >= _CLUSTERED_BYTES
        clustered = large and detail.sizeInBytes <= _MOST_CLUSTERED_BYTES
        by = LAKE_TABLES[name].clustered_by if name in LAKE_TABLES else ()
        # Delta refuses the clause where a user has chosen CLUSTER BY.
        chosen = "clustering" in detail.tableFeatures
        clause = f" ZORDER BY ({', '.join(by)})" if by and clustered and not chosen else ""
        file_bytes = _file_bytes(detail)
        wanted = {
            **_CLUSTERING,
            "spark.databricks.delta.optimize.maxFileSize": str(file_bytes),
            "spark.databricks.delta.optimize.minFileSize": str(file_bytes // 2),
        }
        with self._keeping(table), configured(self.spark, wanted):
            report: Any = self.spark.sql(f"OPTIMIZE {table}{clause}").first()
        return int(report.metrics.numFilesRemoved)

    def vacuum(self, retain_hours: float = _RETAIN_HOURS) -> list[str]:
        """Delete files that no version of the last hours needs, of all tables of the lake. Returns
        the tables that were vacuumed.
        """
        names = [*self._landing(), *self._tables()]
        for name in names:
            with self._errors():
                self._vacuum(name, retain_hours)
        for name in self._known():
            made = f"delta.`{rebuilt_at(self._place, name)}`"
            with self._errors():
                if table_exists(self.spark, made):
                    self.spark.sql(f"VACUUM {made} RETAIN {retain_hours} HOURS")
        return names

    def _vacuum(self, name: str, retain_hours: float) -> None:
        table = self._place.table(name)
        # What lands carries no progress of the pipeline, and its history is long.
        with nullcontext() if name in TABLES else self._keeping(table):
            self.spark.sql(f"VACUUM {table} RETAIN {retain_hours} HOURS")

    def _keeping(self, table: str) -> AbstractContextManager[None]:
        """Copy the metadata of the pipeline's last commit into a commit of maintenance, which may
        outlive it in the log.
        """
        metadata = read_commit_metadata(self.spark, table)
        if metadata is None:
            return nullcontext()
        return carrying_metadata(self.spark, metadata, maintenance=True)

    def feed(self) -> list[str]:
        """Let Delta keep a change data feed of the `tables` of this `Lake` that are there, from now
        on: for readers that follow what changes in them. Returns their names. It lasts, and costs
        a file more for each commit. A table that marks rows in deletion vectors is written anew
        without them.
        """
        names = [name for name in self._tables() if name in self._names]
        for name in names:
            table = self._place.table(name)
            with self._errors(), self._keeping(table):
                if has_vectors(self.spark, table):
                    # Of the feed of files with deletion vectors, delta-rs loses changes.
                    self.spark.sql(
                        f"ALTER TABLE {table} SET TBLPROPERTIES ('{VECTORS_PROPERTY}' = 'false')"
                    )
                    self.spark.sql(f"INSERT OVERWRITE {table} SELECT * FROM {table}")
                self.spark.sql(
                    f"ALTER TABLE {table} SET TBLPROPERTIES ('{FEED_PROPERTY}' = 'true')"
                )
        return names

    def history(self, limit_commits: int = 10) -> list[dict[str, Any]]:
        """The last commits of each table: version, time, operation, rows."""
        found: list[dict[str, Any]] = []
        for name in [*self._landing(), *self._tables()]:
            commits = self.spark.sql(
                f"DESCRIBE HISTORY {self._place.table(name)} LIMIT {limit_commits}"
            )
            found += [
                {
                    "table": name,
                    "version": row.version,
                    "at": row.timestamp,
                    "operation": row.operation,
                    "metrics": dict(row.operationMetrics or {}),
                }
                for row in commits.collect()
            ]
        return found

    def _landing(self) -> list[str]:
        return self._existing(TABLES)

    def _tables(self) -> list[str]:
        return self._existing(self._known())

    def _known(self) -> list[str]:
        return list(dict.fromkeys([*LAKE_TABLES, *self._names]))

    def _existing(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if table_exists(self.spark, self._place.table(name))]
