"""`format("instep")`: the changes of a SQL store or of a lake, in batches or as a stream.

They are aligned: each entity is whole, in the order of its statements, with what a sweep has ended.
A micro-batch is a range of offsets, cut into partitions that are read side by side; read again
after a failure, a range gives the same rows. So what Spark does exactly once with them is done
exactly once. What the journal or the lake keeps has to outlive a reader's rest.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Protocol

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)

from instep.errors import ConfigurationError
from instep_spark.reading.change_filter import CHANGE_SCHEMA_DDL, ChangeFilter, to_microseconds
from instep_spark.reading.data_source_options import DataSourceOptions
from instep_spark.reading.journal_change_reader import JournalChangeReader
from instep_spark.reading.lake_change_reader import LakeChangeReader
from instep_spark.session import is_connect

__all__ = ["InstepDataSource", "register"]

Offset = dict[str, Any]


class ChangeReader(Protocol):
    """Where changes are read from. Offsets are plain data; `read` runs wherever Spark runs it."""

    change_filter: ChangeFilter

    def first(self) -> Offset:
        """Where to begin."""

    def newest(self, after: Offset, limit: int | None) -> Offset:
        """How far there is something to read, about `limit` changes at most."""

    def cut(self, after: Offset, upto: Offset, parts: int) -> list[Any]:
        """The range in `parts` parts at most."""

    def read(self, part: Any) -> Iterator[pa.RecordBatch]:
        """The chosen changes of a part."""


def register(spark: SparkSession) -> None:
    """Make the format known to a session.

    Raises `ConfigurationError` where the Python that a Spark of this machine starts for its workers
    does not find instep.
    """
    _check_workers(spark)
    spark.dataSource.register(InstepDataSource)


def _check_workers(spark: SparkSession) -> None:
    if is_connect(spark) or not (spark.sparkContext.master or "").startswith("local"):
        return  # they are on other machines
    python = spark.sparkContext.pythonExec
    if shutil.which(python) == sys.executable:
        return
    asked = [python, "-c", "import instep_spark"]
    try:
        found = subprocess.run(  # noqa: S603 — what Spark would start
            asked, capture_output=True, timeout=120, check=False
        ).returncode
    except (OSError, subprocess.TimeoutExpired):
        found = 1
    if found != 0:
        raise ConfigurationError(
            f"{python!r}, which Spark starts for its workers, does not find instep",
            where="PYSPARK_PYTHON",
            hint=f"set it before the session begins: PYSPARK_PYTHON={sys.executable}; "
            "instep_spark.open_session() does",
        )


class InstepDataSource(DataSource):
    """The format `instep`.

    From where:

    - `store`: URL of a SQL store with a journal (`journal = "bodies"` for bodies); or
    - `lake`: URL of a lake whose `entity_history` keeps a change data feed.

    What:

    - `consumer`, `stream`: only this one; `class`: only these, separated by commas;
    - `since`, `until`: only what was appended to the provider's log from this time on and before
      that one; ISO 8601 with a zone.

    From when on: in a store behind `startingCursor`, default 0: the oldest change kept; in a lake
    from the commit `startingVersion` of `entity_history` on, by default with what exists, each
    entity as `created`.

    How much: `maxRowsPerTrigger` changes in a micro-batch, default 100,000 (of a lake whole
    commits, at least one), read by `partitions` readers, default 2.
    """

    @classmethod
    def name(cls) -> str:
        """See `DataSource`."""
        return "instep"

    def schema(self) -> str:
        """See `DataSource`."""
        return CHANGE_SCHEMA_DDL

    def reader(self, schema: Any) -> DataSourceReader:  # noqa: ARG002 — Spark's own words
        """For `spark.read`: what is there now."""
        return _Reader(DataSourceOptions.read(self.options))

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: ARG002, N802
        """For `spark.readStream`."""
        return _StreamReader(DataSourceOptions.read(self.options))


class _Partition(InputPartition):
    def __init__(self, part: Any) -> None:
        self.part = part


def _changes(options: DataSourceOptions) -> ChangeReader:
    if options.lake:
        return LakeChangeReader(
            options.lake, options.change_filter, version=options.starting_version
        )
    return JournalChangeReader(options.store, options.change_filter, after=options.starting_cursor)


class _Reader(DataSourceReader):
    def __init__(self, options: DataSourceOptions) -> None:
        self._changes = _changes(options)
        self._parts = options.parts

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802 — Spark's own word
        """Take the filters that a `ChangeFilter` can say; Spark 4.1 and later ask this, where
        `spark.sql.python.filterPushdown.enabled` is set. The others are Spark's.
        """
        for one in filters:
            change_filter = _as_filter(one)
            if change_filter is None:
                yield one
            else:
                self._changes.change_filter = self._changes.change_filter.narrowed(change_filter)

    def partitions(self) -> list[InputPartition]:
        """See `DataSourceReader`. Where there are none, Spark calls `read` once without any."""
        first = self._changes.first()
        newest = self._changes.newest(first, None)
        return [_Partition(part) for part in self._changes.cut(first, newest, self._parts)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """See `DataSourceReader`."""
        return _read(self._changes, partition)


class _StreamReader(DataSourceStreamReader):
    def __init__(self, options: DataSourceOptions) -> None:
        self._changes = _changes(options)
        self._options = options
        self._last: Offset | None = None
        """The end of the last micro-batch."""

    def initialOffset(self) -> Offset:  # noqa: N802 — Spark's own word
        """See `DataSourceStreamReader`."""
        self._last = self._changes.first()
        return self._last

    def latestOffset(self) -> Offset:  # noqa: N802
        """See `DataSourceStreamReader`."""
        after = self._changes.first() if self._last is None else self._last
        return self._changes.newest(after, self._options.limit)

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """See `DataSourceStreamReader`. Begun from a checkpoint, Spark calls it first of all, with
        the last offset that it knows as start and end.
        """
        self._last = end
        if start == end:
            return []
        return [_Partition(part) for part in self._changes.cut(start, end, self._options.parts)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """See `DataSourceStreamReader`."""
        return _read(self._changes, partition)


def _read(changes: ChangeReader, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
    return changes.read(partition.part) if isinstance(partition, _Partition) else iter(())


_COLUMNS = {"consumer": "consumers", "stream": "streams", "class": "classes"}


def _as_filter(one: Any) -> ChangeFilter | None:
    """A filter of Spark as one of ours. By names: before 4.1 there are no such classes."""
    column = ".".join(getattr(one, "attribute", ()))
    value, kind = getattr(one, "value", None), type(one).__name__
    if column in _COLUMNS and kind in ("EqualTo", "In"):
        names: Iterable[str] = [str(value)] if kind == "EqualTo" else map(str, value or ())
        return msgspec.structs.replace(ChangeFilter(), **{_COLUMNS[column]: frozenset(names)})
    if column == "appended_at" and isinstance(value, datetime) and value.tzinfo is not None:
        at_us = to_microseconds(value)
        match kind:
            case "GreaterThanOrEqual":
                return ChangeFilter(since_us=at_us)
            case "GreaterThan":
                return ChangeFilter(since_us=at_us + 1)
            case "LessThan":
                return ChangeFilter(until_us=at_us)
            case "LessThanOrEqual":
                return ChangeFilter(until_us=at_us + 1)
    return None
