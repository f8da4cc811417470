"""What a segment changes in a table, as one MERGE: written for Spark, or done by delta-rs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import Enum, auto
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, WriterProperties

from instep_spark.lake.sql.literals import StreamKey, of_streams

__all__ = ["Merge", "MergeOutcome"]

_OF_TARGET: Final = re.compile(r"\bt\.`?(\w+)")
_OF_SOURCE: Final = re.compile(r"\bs\.`?(\w+)")
_WRITTEN: Final = WriterProperties(compression="SNAPPY")


class Merge(msgspec.Struct, frozen=True):
    """Rows `s`, at most one for each row of the table `t` that they match. All conditions are SQL
    that Spark and DataFusion both read.
    """

    keys: tuple[str, ...]
    """Columns in which a row is equal to the one that it matches; the last one tells most apart."""
    streams: tuple[StreamKey, ...]
    """The streams of the rows."""
    updates: Mapping[str, str]
    """By column of the table."""
    inserts: Mapping[str, str]
    """Empty: rows that match nothing are left out."""
    counts: str = "true"
    """A row that is matched changes nothing else."""
    ends: str = "false"
    """A row that counts deletes what it matches, and one that is not matched is left out."""
    within: Mapping[str, str] = {}
    """Only rows in this partition of the table are matched: the values by column."""
    matching_if: str = ""
    """A boolean column of the rows: only those that have it match any; empty: all do."""

    @property
    def on(self) -> str:
        """SQL: a row matches one of the table."""
        same = [f"t.`{name}` = {value}" for name, value in self.within.items()]
        same += [f"s.`{self.matching_if}`"] if self.matching_if else []
        return " AND ".join([*same, *(f"t.`{name}` = s.`{name}`" for name in self.keys)])

    def target_columns(self, columns: Iterable[str]) -> list[str]:
        """Of the columns of the table, those on which depends what becomes of a matched row."""
        sql = " ".join((self.counts, self.ends, *self.updates.values()))
        read = {*self.keys, *self.within, *_OF_TARGET.findall(sql)}
        return [name for name in columns if name in read or name not in self.updates]

    def source_columns(self, columns: Iterable[str]) -> list[str]:
        """Of the columns of the rows, those that it reads."""
        values = (*self.updates.values(), *self.inserts.values())
        read = {
            *self.keys,
            self.matching_if,
            *_OF_SOURCE.findall(" ".join((self.counts, self.ends, *values))),
        }
        return [name for name in columns if name in read]

    def matching(self, rows: pa.Table) -> pa.Table:
        """Those of the rows that may match any."""
        return rows.filter(pc.field(self.matching_if)) if self.matching_if else rows

    def sql(self, table: str, source: str, *, into_empty: bool = False) -> str:
        """The statement for Spark. `into_empty`: the table has no row, so that nothing is matched:
        Delta then reads the source once instead of twice.
        """
        updates = ", ".join(f"t.`{name}` = {value}" for name, value in self.updates.items())
        columns = ", ".join(f"`{name}`" for name in self.inserts)
        matched = f"""
            WHEN MATCHED AND {self.counts} AND {self.ends} THEN DELETE
            WHEN MATCHED AND {self.counts} THEN UPDATE SET {updates}"""
        new = f"""WHEN NOT MATCHED AND NOT {self.ends}
            THEN INSERT ({columns}) VALUES ({", ".join(self.inserts.values())})"""
        return f"""
            MERGE INTO {table} t USING {source} s ON {self.on} AND {of_streams(self.streams)}
            {"" if into_empty and self.inserts else matched}
            {new if self.inserts else ""}
        """

    def run(
        self,
        table: DeltaTable,
        rows: pa.Table,
        properties: CommitProperties | None = None,
        hooks: PostCommitHookProperties | None = None,
    ) -> int:
        """Do it with delta-rs, which makes no commit that changes no row. How many rows were
        matched and stayed as they were, or stood in a file with rows that did not.
        """
        merger = table.merge(
            rows,
            self.on,
            source_alias="s",
            target_alias="t",
            writer_properties=_WRITTEN,
            commit_properties=properties,
            post_commithook_properties=hooks,
        )
        merger = merger.when_matched_delete(f"{self.counts} AND {self.ends}")
        merger = merger.when_matched_update(
            {f"`{name}`": value for name, value in self.updates.items()}, self.counts
        )
        if self.inserts:
            merger = merger.when_not_matched_insert(
                {f"`{name}`": value for name, value in self.inserts.items()}, f"NOT {self.ends}"
            )
        return int(merger.execute()["num_target_rows_copied"])


class MergeOutcome(Enum):
    """What became of a merge."""

    MERGED = auto()
    UNCHANGED = auto()
    """It would change no row, and there is no commit."""
    OVERTAKEN = auto()
    """Nothing was committed: there is a commit of this number, or another writer came between."""
    UNFIT = auto()
    """Nothing was committed: Spark is to do it."""
