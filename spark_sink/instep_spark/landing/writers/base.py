"""What a writer of landing tables can do; `rust` and `spark` leave the same tables.

Writers are synchronous: the sink calls them in one worker thread, never in the event loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import pyarrow as pa

from instep.errors import SinkError
from instep_spark.lake.batches.progress import StreamProgress
from instep_spark.lake_version import LAKE_VERSION, check_version
from instep_spark.landing_schema import TABLES, arrow_schema

__all__ = ["Conflict", "Transaction", "Writer", "check_table", "table_properties"]

OWNER: Final = "instep.consumer"
VERSION: Final = "instep.schema"


class Conflict(Exception):
    """Another writer committed to the table meanwhile, and this commit conflicts with that one."""


class Transaction(NamedTuple):
    """An application transaction: a table takes each version of an application once."""

    application: str
    before: int | None
    """The version that has to be the last one in the table; None: there is none, or the writer
    cannot read it."""
    version: int


class Writer(Protocol):
    """Appends to the landing tables and reads them. Raises `SinkError`."""

    groups: bool
    """Whether one commit can carry the transactions of several streams."""

    def open(self, consumer: str) -> None:
        """Create the tables, or check that they are ours. Raises `SinkError`."""
        ...

    def committed(self, application: str) -> int | None:
        """The version of the last application transaction, read anew; None: there was none, or the
        writer cannot read it.
        """
        ...

    def append(self, table: str, rows: pa.Table, transactions: Sequence[Transaction] = ()) -> None:
        """Add rows in one commit with these transactions.

        Raises `Conflict`; the caller then reads what the table holds and tries again.
        """
        ...

    def query(self, sql: str) -> pa.Table:
        """Read; `{changes}`, `{quarantine}` and `{stream_facts}` stand for the tables, `{entities}`
        for the pipeline's.
        """
        ...

    def pipeline_progress(self, consumer: str, stream: str) -> StreamProgress:
        """How far the pipeline's `entities` follow a stream; not at all where there is no such
        table.
        """
        ...

    def text(self, value: str) -> str:
        """A text as a literal of `query`'s SQL, its braces doubled."""
        ...

    def timestamp(self, at_us: int) -> str:
        """A moment as an expression of `query`'s SQL."""
        ...

    def tidy(self) -> None:
        """Join small files and tidy the log, where that is the writer's business."""
        ...

    def close(self) -> None: ...


def table_properties(
    table: str, consumer: str, *, shared: bool, log_retention_hours: int
) -> dict[str, str]:
    """The properties of a new table."""
    stated = {
        VERSION: str(LAKE_VERSION),
        OWNER: "" if shared else consumer,
        "delta.appendOnly": "true",
        "delta.checkpointInterval": "100",
        "delta.logRetentionDuration": f"interval {log_retention_hours} hours",
    }
    if table == "changes":
        # Smallest and largest bodies help no query, and they would fill the log.
        stated["delta.dataSkippingStatsColumns"] = "stream,ordinal,key,kind,attempt,committed_at"
    return stated


def check_table(
    table: str,
    found: pa.Schema,
    facts: Mapping[str, Any],
    *,
    consumer: str | None,
    shared: bool,
    where: str,
) -> None:
    """Raise `SinkError` unless the table is one of ours, of a version that is known here, and of
    this consumer (None: whoever's).
    """
    check_version(facts.get(VERSION, ""), where)
    wanted = arrow_schema(TABLES[table])
    types = {field.name: _plain(field.type) for field in found}
    wrong = [field.name for field in wanted if types.get(field.name) != field.type]
    # A required column that is unknown here could not be filled.
    wrong += [f.name for f in found if f.name not in wanted.names and not f.nullable]
    if wrong:
        raise SinkError(
            f"the table has other columns than it was made with: {', '.join(wrong)}",
            where=where,
            hint="somebody altered it: bring the columns back, or use another lake",
            columns=wrong,
        )
    owner = str(facts.get(OWNER, ""))
    if consumer is not None and owner != ("" if shared else consumer):
        whose = f"belongs to the consumer {owner!r}" if owner else "is shared by consumers"
        raise SinkError(
            f"the table {whose}",
            where=where,
            hint="give each consumer a lake of its own, or set shared = true before the first run "
            "of all of them",
            owner=owner,
        )


def _plain(type_: pa.DataType) -> pa.DataType:
    """Return the logical type: engines store texts, bytes and times in several layouts."""
    name = str(type_)
    if name in ("string", "large_string", "string_view"):
        return pa.string()
    if name in ("binary", "large_binary", "binary_view"):
        return pa.binary()
    if pa.types.is_timestamp(type_) and type_.tz is not None:
        return pa.timestamp("us", tz="UTC")
    return type_
