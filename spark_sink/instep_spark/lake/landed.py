"""Looks at `changes`: which rows have landed that some table lacks."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from instep_spark.lake.batches.progress import RECENT_COMMITS, Commit, read_commits
from instep_spark.lake.pipeline import Pipeline
from instep_spark.lake.sql.literals import StreamKey, rows_behind
from instep_spark.lake.tables.delta_rs_table import DeltaRsTable
from instep_spark.place import LakePlace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Landed"]

_WHOLE_LOOK_S: Final = 60.0
"""How often rows of all times are looked through: a clock may be behind the others."""
_RECENT_US: Final = 3_600_000_000
"""Else those that were committed since this long before the newest one that was found."""


class Landed:
    """What has landed in `changes` that some table of a pipeline lacks."""

    def __init__(
        self,
        spark: SparkSession,
        place: LakePlace,
        pipeline: Pipeline,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._spark = spark
        self._pipeline = pipeline
        self._clock = clock
        # The driver reads the last commits in milliseconds, a job of Spark in tenths of a second.
        driven = pipeline.entities.by_driver is not None
        self._driver = DeltaRsTable(place.location("changes")) if driven else None
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
        or that another table has. Streams that no table lacks anything of are left out.

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
            or any(one.operation == "RESTORE" for one in fresh)
        ):
            self._pipeline.refuse_other_changes(self._spark)
        self._version = last
        return True

    def _commits(self) -> list[Commit]:
        found = [] if self._driver is None else self._driver.commits(RECENT_COMMITS)
        return found or read_commits(self._spark, self._pipeline.changes, RECENT_COMMITS)

    def _behind(self, done: dict[StreamKey, int], *, whole: bool) -> dict[StreamKey, int]:
        rows = rows_behind(self._spark.sql(f"SELECT * FROM {self._pipeline.changes}"), done)
        if whole:
            self._looked_s = self._clock()
        elif self._newest_us:
            # By the statistics of its files, what is older is not read.
            rows = rows.where(f"committed_at >= timestamp_micros({self._newest_us - _RECENT_US})")
        found = rows.selectExpr(
            "consumer", "stream", "ordinal", "unix_micros(committed_at) AS committed_us"
        )
        found = found.groupBy("consumer", "stream").agg({"ordinal": "max", "committed_us": "max"})
        ends: dict[StreamKey, int] = {}
        for row in found.collect():
            ends[row.consumer, row.stream] = row["max(ordinal)"]
            self._newest_us = max(self._newest_us, row["max(committed_us)"])
        return ends
