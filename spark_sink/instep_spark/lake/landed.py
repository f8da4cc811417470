"""Looks at `changes`: which rows have landed that some table lacks."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from instep_spark.lake.batches.progress import RECENT_COMMITS, Commit, read_commits
from instep_spark.lake.pipeline import Pipeline
from instep_spark.lake.sql.dialect import DATAFUSION, SPARK, Dialect
from instep_spark.lake.sql.literals import StreamKey
from instep_spark.session import ONE_TASK, configured

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["LandedRows"]

_WHOLE_LOOK_S: Final = 60.0
"""How often rows of all times are looked through: a clock may be behind the others."""
_RECENT_US: Final = 3_600_000_000
"""Else those that were committed since this long before the newest one that was found."""


class LandedRows:
    """What has landed in `changes` that some table of a pipeline lacks."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._spark = spark
        self._pipeline = pipeline
        self._clock = clock
        # The driver reads the last commits in milliseconds, a job of Spark in tenths of a second.
        self._driver = pipeline.changes_by_driver
        self._version = -1
        """The version of `changes` in which all was looked for."""
        self._looked_s = -_WHOLE_LOOK_S
        self._newest_us = 0
        """When the newest row was committed that was found; 0: none was."""

    def forget(self) -> None:
        """Look for all rows the next time: a table lacks other ones than before."""
        self._version, self._looked_s = -1, -_WHOLE_LOOK_S

    def ends(self) -> dict[StreamKey, int]:
        """By stream the last ordinal up to which some table lacks rows: of a row that has landed,
        or that another table has (L5). Streams that no table lacks anything of are left out.

        Raises `SinkError` where `changes` was restored, and lacks what the tables follow (L2).
        """
        passed, done = self._pipeline.passed(), self._pipeline.done()
        ends = {key: last for key, last in passed.items() if done[key] < last}
        if self._has_moved():
            whole = self._clock() - self._looked_s >= _WHOLE_LOOK_S
            found = self._behind(done, whole=whole)
            if not found and not whole:
                found = self._behind(done, whole=True)
            ends |= {key: max(last, passed.get(key, 0)) for key, last in found.items()}
        return ends

    def _has_moved(self) -> bool:
        """Whether there is a new version of `changes`, or what is behind is not known any more."""
        commits = self._commits()
        last = commits[0].version if commits else -1
        if last == self._version:
            return False
        fresh = [one for one in commits if one.version > self._version]
        known = self._version < 0
        if not known and (
            last < self._version
            or len(fresh) != last - self._version
            or any(one.replaces_content for one in fresh)
        ):
            self._pipeline.refuse_other_changes(self._spark)
        self._version = last
        return True

    def _commits(self) -> list[Commit]:
        found = [] if self._driver is None else self._driver.commits(RECENT_COMMITS)
        return found or read_commits(self._spark, self._pipeline.changes, RECENT_COMMITS)

    def _behind(self, done: Mapping[StreamKey, int], *, whole: bool) -> dict[StreamKey, int]:
        if whole:
            self._looked_s = self._clock()
        # By the statistics of its files, what is older is not read.
        since_us = None if whole else self._newest_us - _RECENT_US
        ends: dict[StreamKey, int] = {}
        for row in self._last_rows(since_us).to_pylist():
            key = (row["consumer"], row["stream"])
            if row["ordinal"] > done.get(key, 0):
                ends[key] = row["ordinal"]
            self._newest_us = max(self._newest_us, row["committed_us"])
        return ends

    def _last_rows(self, since_us: int | None) -> pa.Table:
        """By stream the last ordinal and time of commit, of rows that were committed since then;
        None: of all.
        """
        sql = """SELECT consumer, stream, max(ordinal) AS ordinal, max(committed_at) AS committed_at
            FROM {} WHERE {} GROUP BY consumer, stream"""

        def since(dialect: Dialect) -> str:
            return "true" if since_us is None else f"committed_at >= {dialect.time_of(since_us)}"

        found = None
        if self._driver is not None:
            found = self._driver.query(sql.format("t", since(DATAFUSION)))
        if found is None:
            statement = sql.format(self._pipeline.changes, since(SPARK))
            with configured(self._spark, ONE_TASK):
                found = self._spark.sql(statement).toArrow()
        moments = found["committed_at"].cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        return found.append_column("committed_us", moments)
