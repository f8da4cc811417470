"""What a segment changes in a table, as one MERGE: written for Spark, or done by delta-rs."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

import msgspec

from instep_spark.lake.sql.literals import StreamKey, of_streams

__all__ = ["Merge", "MergeOutcome"]


class Merge(msgspec.Struct, frozen=True):
    """Rows `s`, at most one for each row of the table `t` that they match. All conditions are SQL
    that Spark and DataFusion both read.
    """

    on: str
    streams: tuple[StreamKey, ...]
    """The streams of the rows."""
    updates: Mapping[str, str]
    """By column of the table."""
    inserts: Mapping[str, str]
    counts: str = "true"
    """A row that is matched changes nothing else."""
    ends: str = "false"
    """A row that counts deletes what it matches, and one that is not matched is left out."""

    def sql(self, table: str, source: str, *, into_empty: bool = False) -> str:
        """The statement for Spark. `into_empty`: the table has no row, so that nothing is matched:
        Delta then reads the source once instead of twice.
        """
        updates = ", ".join(f"t.`{name}` = {value}" for name, value in self.updates.items())
        columns = ", ".join(f"`{name}`" for name in self.inserts)
        matched = f"""
            WHEN MATCHED AND {self.counts} AND {self.ends} THEN DELETE
            WHEN MATCHED AND {self.counts} THEN UPDATE SET {updates}"""
        return f"""
            MERGE INTO {table} t USING {source} s ON {self.on} AND {of_streams(self.streams)}
            {"" if into_empty else matched}
            WHEN NOT MATCHED AND NOT {self.ends}
            THEN INSERT ({columns}) VALUES ({", ".join(self.inserts.values())})
        """  # noqa: S608 — names of our own tables, literals escaped


class MergeOutcome(Enum):
    """What became of a merge."""

    MERGED = auto()
    UNCHANGED = auto()
    """It would change no row, and there is no commit."""
    OVERTAKEN = auto()
    """Nothing was done: there is a commit of this number, or another writer came between."""
    UNFIT = auto()
    """Nothing was done: Spark is to do it."""
