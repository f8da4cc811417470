"""What a segment changes in a table, as one MERGE: written for Spark, or done by delta-rs.

The second is a short cut for few rows. A MERGE of Spark takes about a second, however few rows it
has, and delta-rs a few hundredths (`python -m bench.lake.steady`). The plain twin is the statement
of `Merge.sql`; `test_a_small_merge_is_what_spark_makes_of_it` holds that both do the same, and the
random logs run both ways.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

import deltalake
import msgspec
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, WriterProperties
from deltalake.exceptions import CommitFailedError, DeltaError, DeltaProtocolError

from instep.errors import SinkError
from instep_spark.lake.batches.progress import APPLICATION, CommitMetadata
from instep_spark.lake.sql.literals import StreamKey, of_streams
from instep_spark.lake.tables.schema import FEED_PROPERTY, VECTORS_PROPERTY

__all__ = ["DriverMerges", "Merge", "MergeOutcome"]

_LARGE_BYTES: Final = 1 << 30
"""A table of more bytes is not read by the driver."""
_MESSAGE_CHARS: Final = 400
_WRITTEN: Final = WriterProperties(compression="SNAPPY")
_HOOKS: Final = PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=True)


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


class DriverMerges:
    """Merges into one table that the driver itself can read and write."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._table: DeltaTable | None = None

    def apply(self, merge: Merge, rows: pa.Table, metadata: CommitMetadata) -> MergeOutcome:
        """Merge the rows in one commit that carries `metadata`. Raises `SinkError`."""
        try:
            return self._apply(merge, rows, metadata)
        except CommitFailedError:
            return MergeOutcome.OVERTAKEN
        except DeltaProtocolError:
            return MergeOutcome.UNFIT
        except (DeltaError, OSError) as error:
            self._table = None
            lines = str(error).strip().splitlines() or [type(error).__name__]
            raise SinkError(
                f"the table cannot be written: {lines[0][:_MESSAGE_CHARS]}",
                where=self._url,
                hint="nothing is torn: what was not committed is done when it is run again",
                retriable=True,
            ) from error

    def _apply(self, merge: Merge, rows: pa.Table, metadata: CommitMetadata) -> MergeOutcome:
        if self._table is None:
            self._table = DeltaTable(self._url)
        table = self._table
        table.update_incremental()
        properties = table.metadata().configuration
        if "true" in (properties.get(VECTORS_PROPERTY), properties.get(FEED_PROPERTY)):
            return MergeOutcome.UNFIT
        sizes = pa.table(table.get_add_actions())["size_bytes"]
        if sum(sizes.to_pylist()) > _LARGE_BYTES:
            return MergeOutcome.UNFIT
        made = table.transaction_version(APPLICATION)
        if made is not None and made >= metadata.number:
            return MergeOutcome.OVERTAKEN
        merger = table.merge(
            rows,
            merge.on,
            source_alias="s",
            target_alias="t",
            writer_properties=_WRITTEN,
            commit_properties=CommitProperties(
                custom_metadata={"userMetadata": metadata.encode()},
                app_transactions=[deltalake.Transaction(APPLICATION, metadata.number)],
            ),
            post_commithook_properties=_HOOKS,
        )
        merger = merger.when_matched_delete(f"{merge.counts} AND {merge.ends}")
        merger = merger.when_matched_update(
            {f"`{name}`": value for name, value in merge.updates.items()}, merge.counts
        )
        merger = merger.when_not_matched_insert(
            {f"`{name}`": value for name, value in merge.inserts.items()}, f"NOT {merge.ends}"
        )
        before = table.version()
        merger.execute()
        # delta-rs makes no commit that changes no row.
        return MergeOutcome.MERGED if table.version() > before else MergeOutcome.UNCHANGED
