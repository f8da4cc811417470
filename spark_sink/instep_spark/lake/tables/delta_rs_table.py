"""One table of the lake, read and written by the driver itself with delta-rs.

It is a short cut for few rows. A MERGE of Spark takes about a second, and a query of a table half
of one, however few rows they concern; delta-rs takes some hundredths (`python -m
bench.lake.steady`). The plain twins are `Merge.sql` and the queries of Spark;
`test_a_small_merge_is_what_spark_makes_of_it` holds that both do the same, and the random logs run
both ways.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

import deltalake
import pyarrow as pa
from deltalake import (
    CommitProperties,
    DeltaTable,
    PostCommitHookProperties,
    QueryBuilder,
    WriterProperties,
)
from deltalake.exceptions import CommitFailedError, DeltaError, DeltaProtocolError

from instep.errors import SinkError
from instep_spark.error_text import first_line
from instep_spark.lake.batches.progress import APPLICATION, CommitMetadata
from instep_spark.lake.sql.literals import text
from instep_spark.lake.tables.merge import Merge, MergeOutcome
from instep_spark.lake.tables.schema import FEED_PROPERTY, VECTORS_PROPERTY

__all__ = ["LARGE_BYTES", "DeltaRsTable", "one_of"]

LARGE_BYTES: Final = 1 << 30
"""A table of more bytes is neither read nor written by the driver."""
_WRITTEN: Final = WriterProperties(compression="SNAPPY")
_HOOKS: Final = PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=True)
_SEPARATOR: Final = "\x1f"

T = TypeVar("T")


def one_of(column: str, values: Iterable[str]) -> str | None:
    """SQL of DataFusion: a column has one of these values, however many. None: a value has the
    character that separates them.
    """
    values = list(values)
    if not values:
        return "false"
    joined = _SEPARATOR.join(values)
    if not joined:
        return f"{column} = ''"  # an empty text would be split into nothing
    if joined.count(_SEPARATOR) >= len(values):
        return None
    # One literal: to parse a list of 20,000 takes half a second.
    listed = f"SELECT unnest(string_to_array({text(joined)}, chr({ord(_SEPARATOR)})))"
    return f"{column} IN ({listed})"


class DeltaRsTable:
    """A table that the driver itself can read and write."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._table: DeltaTable | None = None

    def merge(self, merge: Merge, rows: pa.Table, metadata: CommitMetadata) -> MergeOutcome:
        """Merge the rows in one commit that carries `metadata`. Raises `SinkError`."""
        try:
            return self._guarded(lambda: self._merge(merge, rows, metadata), MergeOutcome.UNFIT)
        except CommitFailedError:
            return MergeOutcome.OVERTAKEN

    def query(self, sql: str) -> pa.Table | None:
        """Return what a query of DataFusion finds, in which the table is `t`. None: Spark is to ask
        instead. Raises `SinkError`.
        """
        return self._guarded(lambda: self._query(sql), None)

    def _guarded(self, do: Callable[[], T], unfit: T) -> T:
        try:
            return do()
        except CommitFailedError:
            raise
        except DeltaProtocolError:
            return unfit
        except (DeltaError, OSError) as error:
            self._table = None
            raise SinkError(
                f"the driver can neither read nor write the table: {first_line(error)}",
                where=self._url,
                hint="nothing is torn: what was not committed is done when it is run again",
                retriable=True,
            ) from error

    def _open(self) -> DeltaTable | None:
        """The table as it is now; None: it is not for the driver."""
        if self._table is None:
            self._table = DeltaTable(self._url)
        table = self._table
        table.update_incremental()
        properties = table.metadata().configuration
        if "true" in (properties.get(VECTORS_PROPERTY), properties.get(FEED_PROPERTY)):
            return None
        sizes = pa.table(table.get_add_actions())["size_bytes"]
        return None if sum(sizes.to_pylist()) > LARGE_BYTES else table

    def _query(self, sql: str) -> pa.Table | None:
        table = self._open()
        if table is None:
            return None
        found = pa.table(QueryBuilder().register("t", table).execute(sql).read_all())
        return found.cast(
            pa.schema([field.with_type(_plain(field.type)) for field in found.schema])
        )

    def _merge(self, merge: Merge, rows: pa.Table, metadata: CommitMetadata) -> MergeOutcome:
        table = self._open()
        if table is None:
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


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type that Spark knows for one of DataFusion."""
    if kind == pa.string_view():
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_plain(kind.value_type))
    return kind
