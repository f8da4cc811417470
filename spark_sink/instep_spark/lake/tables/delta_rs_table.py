"""One table of the lake, read and written by the driver itself with delta-rs.

It is a short cut for few rows. A MERGE of Spark takes about a second, and a query of a table half
of one, however few rows they concern; delta-rs takes some hundredths (`python -m
bench.lake.steady`). The plain twins are `Merge.sql` and the queries of Spark;
`test_a_small_merge_is_what_spark_makes_of_it` holds that both do the same, and the random logs run
both ways.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Final, NamedTuple, TypeVar

import deltalake
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties
from deltalake.exceptions import (
    CommitFailedError,
    DeltaError,
    DeltaProtocolError,
    TableNotFoundError,
)

from instep.errors import SinkError
from instep_spark.error_text import disk_full, first_line, is_file_gone
from instep_spark.lake.batches.progress import (
    APPLICATION,
    Commit,
    CommitMetadata,
    commits_of,
)
from instep_spark.lake.deletion_vectors.delta_log import VECTORS_PROPERTY
from instep_spark.lake.deletion_vectors.merge_on_read_table import MergeOnReadTable
from instep_spark.lake.merge import Merge, MergeOutcome
from instep_spark.lake.sql.datafusion import query
from instep_spark.lake.tables.schema import FEED_PROPERTY

__all__ = ["DeltaRsTable", "TableDescription"]

_LARGE_BYTES: Final = 1 << 30
"""A table of more bytes is neither read nor written by the driver …"""
_LARGE_MARKED_BYTES: Final = 16 << 30
"""… and neither is one of more than this, in which it marks rows: it looks through all ids."""
_HOOKS: Final = PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=True)

T = TypeVar("T")


class TableDescription(NamedTuple):
    """What a table is, whatever rows it has."""

    properties: Mapping[str, str]
    columns: Collection[str]


class DeltaRsTable:
    """A table that the driver itself can read and write."""

    def __init__(
        self, url: str, storage_options: Mapping[str, str] | None = None, *, any_size: bool = False
    ) -> None:
        """`storage_options`: of an object store, as delta-rs takes them; `any_size`: the table is
        only read, and of its rows those that few ordinals or times bound, however many bytes it
        has.
        """
        self._url = url
        self._storage_options = dict(storage_options or {}) or None
        self._any_size = any_size
        self._table: DeltaTable | None = None
        on_disk = url.startswith("file:")
        self._merge_on_read = MergeOnReadTable(url) if on_disk else None
        """Only files of this machine are looked through and copied."""

    def _load(self) -> DeltaTable:
        return DeltaTable(self._url, storage_options=self._storage_options)

    def merge(self, merge: Merge, rows: pa.Table, metadata: CommitMetadata) -> MergeOutcome:
        """Merge the rows in one commit that carries `metadata`. Raises `SinkError`."""
        try:
            return self._guarded(lambda: self._merge(merge, rows, metadata), MergeOutcome.UNFIT)
        except CommitFailedError:
            return MergeOutcome.OVERTAKEN

    def was_replaced(self) -> bool:
        """Whether another writer has replaced the last commit to a table that marks rows; told
        once.
        """
        if self._merge_on_read is None or not self._merge_on_read.was_replaced():
            return False
        self._table = None
        return True

    def commits(self, limit: int | None) -> list[Commit]:
        """The last commits, the newest first, None: all; none where there is no table, or one that
        is not for the driver, as a shallow clone. Raises `SinkError`.
        """
        return self._guarded(lambda: self._commits(limit), [])

    def described(self) -> TableDescription | None:
        """What the table is. None: there is none that the driver reads. Raises `SinkError`."""
        return self._guarded(self._described, None)

    def set_property(self, name: str, value: str) -> None:
        """Give the table a property. What is not for the driver, and a table that another writer
        changes just then, stays as it is. Raises `SinkError`.
        """
        with suppress(CommitFailedError):
            self._guarded(lambda: self._set_property(name, value), None)

    def commit_metadata(self, metadata: CommitMetadata) -> MergeOutcome:
        """Make a commit that changes no row and carries `metadata`. Raises `SinkError`."""
        try:
            return self._guarded(lambda: self._commit_metadata(metadata), MergeOutcome.UNFIT)
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
            if (full := disk_full(error, self._url)) is not None:
                raise full from error
            if is_file_gone(error):
                raise SinkError(
                    f"a file of the table is gone: {first_line(error)}",
                    where=self._url,
                    hint="make it again from changes: instep lake rebuild --tables NAME; where its "
                    "log is gone, move the folder away, and run",
                ) from error
            raise SinkError(
                f"the driver can neither read nor write the table: {first_line(error)}",
                where=self._url,
                hint="nothing is torn: what was not committed is done when it is run again",
                retriable=True,
            ) from error

    def _commits(self, limit: int | None) -> list[Commit]:
        # A table that is known shows no other one that was made in its folder.
        try:
            table = self._load()
        except TableNotFoundError:
            self._table = None
            return []
        if self._table is not None and self._table.metadata().id != table.metadata().id:
            self._table = None
        return commits_of(table, limit)

    def _open(self) -> DeltaTable | None:
        """The table as it is now; None: it is not for the driver."""
        if self._table is None:
            self._table = self._load()
        table = self._table
        table.update_incremental()
        if table.metadata().configuration.get(FEED_PROPERTY) == "true":
            return None
        if self._any_size:
            return table
        sizes = pa.table(table.get_add_actions())["size_bytes"]
        most = _LARGE_MARKED_BYTES if _marks_rows(table) else _LARGE_BYTES
        return None if sum(sizes.to_pylist()) > most else table

    def _described(self) -> TableDescription | None:
        try:
            table = self._load()
        except TableNotFoundError:
            return None
        columns = [field.name for field in table.schema().fields]
        return TableDescription(table.metadata().configuration, columns)

    def _set_property(self, name: str, value: str) -> None:
        self._load().alter.set_table_properties({name: value}, raise_if_not_exists=False)

    def _commit_metadata(self, metadata: CommitMetadata) -> MergeOutcome:
        if self.was_replaced():
            return MergeOutcome.OVERTAKEN
        table = self._open()
        if table is None or _marks_rows(table):
            return MergeOutcome.UNFIT
        made = table.transaction_version(APPLICATION)
        if made is not None and made >= metadata.number:
            return MergeOutcome.OVERTAKEN
        table.create_write_transaction(
            [],
            "append",
            table.schema(),
            table.metadata().partition_columns,
            commit_properties=_properties(metadata),
            post_commithook_properties=_HOOKS,
        )
        return MergeOutcome.MERGED

    def _query(self, sql: str) -> pa.Table | None:
        table = self._open()
        return None if table is None else query(table, sql)

    def _merge(self, merge: Merge, rows: pa.Table, metadata: CommitMetadata) -> MergeOutcome:
        if self.was_replaced():
            return MergeOutcome.OVERTAKEN
        table = self._open()
        if table is None:
            return MergeOutcome.UNFIT
        made = table.transaction_version(APPLICATION)
        if made is not None and made >= metadata.number:
            return MergeOutcome.OVERTAKEN
        before = table.version()
        if _marks_rows(table):
            if self._merge_on_read is None:
                return MergeOutcome.UNFIT
            return self._merge_on_read.merge(table, merge, rows, metadata)
        merge.run(table, rows, _properties(metadata), _HOOKS)
        return MergeOutcome.MERGED if table.version() > before else MergeOutcome.UNCHANGED


def _properties(metadata: CommitMetadata) -> CommitProperties:
    return CommitProperties(
        custom_metadata={"userMetadata": metadata.encode()},
        app_transactions=[deltalake.Transaction(APPLICATION, metadata.number)],
    )


def _marks_rows(table: DeltaTable) -> bool:
    """Whether changes are marked in deletion vectors."""
    return table.metadata().configuration.get(VECTORS_PROPERTY) == "true"
