"""The writer that needs no JVM: delta-rs, on local disk and object stores."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import deltalake
import pyarrow as pa
from deltalake import (
    CommitProperties,
    DeltaTable,
    PostCommitHookProperties,
    QueryBuilder,
    WriterProperties,
    write_deltalake,
)
from deltalake.exceptions import (
    CommitFailedError,
    DeltaError,
    SchemaMismatchError,
    TableNotFoundError,
)

from instep.errors import SinkError, StoreUnavailableError
from instep_spark.error_text import disk_full, first_line
from instep_spark.lake.batches.progress import (
    StreamProgress,
    commits_of,
    read_content,
)
from instep_spark.landing.writers.base import Conflict, Transaction, check_table, table_properties
from instep_spark.landing_schema import MEANINGS, TABLES, described_schema
from instep_spark.options import DeltaOptions

__all__ = ["DeltaRsWriter", "as_sink_error"]

_log = logging.getLogger(__name__)

_COMPACTED_BYTES: Final = 64 << 20
_WRITTEN: Final = WriterProperties(compression="ZSTD", compression_level=1)
_HOOKS: Final = PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False)
_REFUSED: Final = ("Permission denied", "PermissionDenied", "AccessDenied", "Read-only file system")


class DeltaRsWriter:
    """Implements `Writer` over deltalake. One thread at a time."""

    groups = True

    def __init__(self, options: DeltaOptions) -> None:
        self._options = options
        self._tables: dict[str, DeltaTable] = {}
        self._ours: set[str] = set()
        """Applications that the last change of the log in hand has made here: nobody else has
        moved them there unseen."""

    def open(self, consumer: str | None) -> None:
        """Create the tables or check them; None: open what is there, for reading."""
        options = self._options
        for name in TABLES:
            where = options.location(name)
            try:
                table = self._open(name, consumer)
            except Exception as error:
                raise as_sink_error(error, options, where) from error
            check_table(
                name,
                pa.schema(table.schema().to_arrow()),
                table.metadata().configuration,
                consumer=consumer,
                shared=options.shared,
                where=where,
            )
            self._tables[name] = table

    def _open(self, name: str, consumer: str | None) -> DeltaTable:
        where, storage = self._options.location(name), self._options.storage_options or None
        try:
            return self._load(name)
        except TableNotFoundError:
            if consumer is None:
                raise
        made = table_properties(
            name,
            consumer,
            shared=self._options.shared,
            log_retention_hours=self._options.log_retention_hours,
        )
        # Of two processes that come here at once, the second finds the table of the first.
        return DeltaTable.create(
            where,
            described_schema(TABLES[name]),
            mode="ignore",
            name=f"instep_{name}",
            description=MEANINGS[name],
            configuration=made,
            storage_options=storage,
            raise_if_key_not_exists=False,
        )

    def committed(self, application: str) -> int | None:
        """See `Writer`."""
        table = self._table("changes")
        self._ours.clear()
        try:
            table.update_incremental()
            return table.transaction_version(application)
        except Exception as error:
            raise as_sink_error(error, self._options, table.table_uri) from error

    def append(self, table: str, rows: pa.Table, transactions: Sequence[Transaction] = ()) -> None:
        """See `Writer`. delta-rs itself sets an append behind what others append after the version
        that is in hand here, and refuses it where one of its applications has committed since.
        """
        target = self._table(table)
        for application, before, _ in transactions:
            if application in self._ours:
                continue
            if target.transaction_version(application) != before:
                raise Conflict(f"{application} has committed meanwhile")
        commit = CommitProperties(
            app_transactions=[
                deltalake.Transaction(one.application, one.version) for one in transactions
            ]
        )
        try:
            write_deltalake(
                target,
                rows,
                mode="append",
                writer_properties=_WRITTEN,
                commit_properties=commit,
                post_commithook_properties=_HOOKS,
            )
        except Exception as error:
            self._ours.clear()
            if isinstance(error, CommitFailedError):
                raise Conflict(str(error)) from error
            raise as_sink_error(error, self._options, target.table_uri) from error
        if transactions:
            self._ours = {one.application for one in transactions}

    def query(self, sql: str) -> pa.Table:
        """See `Writer`; DataFusion reads the files that the statistics do not rule out."""
        builder = QueryBuilder()
        names = {name: name for name in (*TABLES, "entities")}
        try:
            for name in TABLES:
                if f"{{{name}}}" in sql:
                    table = self._table(name)
                    self._ours.clear()
                    table.update_incremental()
                    builder = builder.register(name, table)
            if "{entities}" in sql:
                builder = builder.register("entities", self._load("entities"))
            # Its own `read_all` would hold the interpreter, and so the event loop, to its end.
            stream = builder.execute(sql.format_map(names))
            return pa.RecordBatchReader.from_stream(stream).read_all()
        except Exception as error:
            raise as_sink_error(error, self._options, self._options.url) from error

    def pipeline_progress(self, consumer: str, stream: str) -> StreamProgress:
        """See `Writer`. What is read of `entities` after this is as new as this, or newer."""
        try:
            entities = self._load("entities")
            metadata = read_content(partial(commits_of, entities)).metadata
        except TableNotFoundError:
            return StreamProgress()
        except Exception as error:
            where = self._options.location("entities")
            raise as_sink_error(error, self._options, where) from error
        return StreamProgress() if metadata is None else metadata.progress[consumer, stream]

    def text(self, value: str) -> str:
        """See `Writer`."""
        return "'" + value.replace("'", "''").replace("{", "{{").replace("}", "}}") + "'"

    def timestamp(self, at_us: int) -> str:
        """See `Writer`."""
        return f"arrow_cast({at_us}, 'Timestamp(Microsecond, Some(\"UTC\"))')"

    def tidy(self) -> None:
        """Join small files up to a size, and drop the log that no reader may ask for any more."""
        self._ours.clear()
        for name in TABLES:
            table = self._table(name)
            try:
                table.optimize.compact(
                    target_size=_COMPACTED_BYTES,
                    max_concurrent_tasks=1,
                    writer_properties=_WRITTEN,
                )
                table.cleanup_metadata()
            except CommitFailedError:
                # Somebody else did the same; the next time will do.
                table.update_incremental()
            except Exception as error:
                raise as_sink_error(error, self._options, table.table_uri) from error

    def close(self) -> None:
        """See `Writer`."""
        self._tables.clear()

    def _load(self, name: str) -> DeltaTable:
        storage = self._options.storage_options or None
        return DeltaTable(self._options.location(name), storage_options=storage)

    def _table(self, name: str) -> DeltaTable:
        try:
            return self._tables[name]
        except KeyError:
            raise SinkError(
                "the lake is not open", where=self._options.url, hint="call open(consumer) first"
            ) from None


def as_sink_error(error: Exception, options: DeltaOptions, where: str) -> SinkError:
    """Return the error as one of instep, without any secret; an error of instep is returned as it
    is.
    """
    if isinstance(error, SinkError):
        return error
    # delta-rs adds a backtrace, and what it tried before.
    message = options.redact(first_line(error))
    _log.debug("%s: %s", where, options.redact(str(error)))
    facts: dict[str, Any] = {"where": where}
    if isinstance(error, TableNotFoundError):
        return SinkError("there is no table", hint="look at the URL of the lake", **facts)
    if isinstance(error, SchemaMismatchError):
        return SinkError(f"the table has another shape: {message}", **facts)
    if (full := disk_full(error, where, "make room: the batch is tried again")) is not None:
        return full
    if any(word in str(error) for word in _REFUSED):
        return SinkError(f"no access: {message}", hint="look at the rights and keys", **facts)
    if isinstance(error, (DeltaError, OSError, pa.ArrowException)):
        return StoreUnavailableError(
            f"the lake cannot be used now: {message}", hint="the batch is tried again", **facts
        )
    return SinkError(f"the lake refused it: {message}", **facts)
