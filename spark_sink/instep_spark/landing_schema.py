"""What the landing tables hold: one list of columns for Arrow, for Spark's DDL and for the
reference.

`changes` is append-only. Its rows are the records of a stream in the order of commit, and control
rows between them for what no record carries: that an attempt was opened, that its sweep is due,
that the position moved alone. Whoever reads the rows of one consumer and stream by `ordinal` can
decide all that the SQL store decides.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final, NamedTuple

import pyarrow as pa

__all__ = [
    "CHANGES",
    "FACTS",
    "MEANINGS",
    "QUARANTINE",
    "TABLES",
    "Column",
    "ControlKind",
    "FactKind",
    "arrow_schema",
    "comment_literal",
    "ddl",
    "described_schema",
]

_MOMENT: Final = pa.timestamp("us", tz="UTC")
_DDL: Final = {
    pa.string(): "STRING",
    pa.int64(): "BIGINT",
    pa.bool_(): "BOOLEAN",
    pa.binary(): "BINARY",
    _MOMENT: "TIMESTAMP",
}


class Column(NamedTuple):
    """One column of a table."""

    name: str
    type: pa.DataType
    meaning: str
    nullable: bool = False


class ControlKind(StrEnum):
    """Rows of `changes` that are no records: `kind` beside CREATE_UPDATE, DELETE, TOMBSTONE and
    CHANGE.
    """

    ATTEMPT = "ATTEMPT"
    """An attempt was opened (TR-548 ST-2.2 step 1): `attempt` and `lineage` hold from here on."""
    SWEEP = "SWEEP"
    """The sweep of `attempt` is due (ST-2.2 step 7): of the rows with a smaller ordinal, entities
    whose last statement carries a lower attempt end here. `body` is null, or
    `{"readable": [classes]}`: only entities of these classes end, the others stay, unproven. No
    class: the attempt could not read something that may be about any of them (A17)."""
    POSITION = "POSITION"
    """The position moved, and no record with it."""


class FactKind(StrEnum):
    """Rows of `stream_facts`."""

    STREAM = "STREAM"
    """`body` is the stream as its provider declares it (`StreamInfo` as JSON); the newest holds.
    Its `not_offered_since_us` says since when the provider does not offer it any more (A20)."""
    DEVIATION = "DEVIATION"
    """The provider did `name` `count` times more (A10)."""
    RELEASE = "RELEASE"
    """The held sweep of attempt `count` was released (A6)."""
    PROOF = "PROOF"
    """Attempt `count` came to its sweep `at`: it has proven what it has met (A22). `name`: attempt,
    or baseline where the entities were read beside the log."""
    UNPROVEN = "UNPROVEN"
    """Of class `name` (empty: of any) what attempt `count` has not met is unproven; `body` says why
    (`UnprovenReason`), with the digest of what could not be read."""
    MONITOR = "MONITOR"
    """What the provider says of our reading (TR-548 3.18): `body` is the `ProviderMonitor` as JSON,
    null where it says nothing more, or the stream has no connection; the newest holds."""
    RETIRED = "RETIRED"
    """The stream was retired (A20): nothing is stored of it until it is followed again."""


CHANGES: Final = (
    Column("consumer", pa.string(), "name of the consumer"),
    Column("stream", pa.string(), "id of the stream"),
    Column(
        "ordinal",
        pa.int64(),
        "instep's own count of the rows of this consumer and stream: dense, from 1, in the order "
        "of commit",
    ),
    Column("key", pa.string(), "entity-key; empty on control rows"),
    Column(
        "kind",
        pa.string(),
        "CREATE_UPDATE, DELETE, TOMBSTONE or CHANGE; ATTEMPT, SWEEP or POSITION on control rows",
    ),
    Column("token", pa.string(), "token of the record; empty for a row of a baseline"),
    Column("partition", pa.string(), "partition of the log; empty where the provider names none"),
    Column(
        "record_offset",
        pa.int64(),
        "place within the partition, growing, with gaps; -1 where the provider states none",
    ),
    Column(
        "appended_at",
        _MOMENT,
        "log-append-time-stamp of the provider; null on control rows",
        nullable=True,
    ),
    Column("event_at", _MOMENT, "event-time-stamp; null where none can be read", nullable=True),
    Column("class", pa.string(), "record-content, such as NODE; empty where the record has none"),
    Column(
        "parent_address",
        pa.string(),
        "parent-address as JSON; null where the record has none",
        nullable=True,
    ),
    Column("attempt", pa.int64(), "alignment attempt that stated the row"),
    Column(
        "lineage",
        pa.int64(),
        "count of the logs read: append times compare within one only; 0 for rows of a baseline "
        "that any record of the stream beats",
    ),
    Column(
        "whole",
        pa.bool_(),
        "false for a change to what is stored: a CHANGE, or a CREATE_UPDATE that is a part",
    ),
    Column("ends", pa.bool_(), "the statement ends its entity: DELETE, TOMBSTONE or a CLEAR alarm"),
    Column("uuid", pa.string(), "the entity's own uuid, where rows must meet a baseline; or empty"),
    Column(
        "body",
        pa.string(),
        "the entity as JSON, as stated; null for header-only records",
        nullable=True,
    ),
    Column(
        "envelope",
        pa.string(),
        "the rest of the log-record-body as one JSON object, or null",
        nullable=True,
    ),
    Column(
        "position",
        pa.string(),
        "on the last row of a commit: the Position it leads to, as JSON; null else",
        nullable=True,
    ),
    Column("committed_at", _MOMENT, "our time when the commit began"),
)
"""The columns of `changes`."""

QUARANTINE: Final = (
    Column("consumer", pa.string(), "name of the consumer"),
    Column("stream", pa.string(), "id of the stream"),
    Column("reason", pa.string(), "why the record could not be read"),
    Column("token", pa.string(), "its token, where that could be read", nullable=True),
    Column("received_at", _MOMENT, "our time of receipt"),
    Column(
        "digest",
        pa.string(),
        "tells a record received again; null where it had no token",
        nullable=True,
    ),
    Column("raw", pa.binary(), "the bytes as received"),
)
"""The columns of `quarantine` (A11)."""

FACTS: Final = (
    Column("consumer", pa.string(), "name of the consumer"),
    Column("stream", pa.string(), "id of the stream"),
    Column("fact", pa.string(), "STREAM, DEVIATION, RELEASE, PROOF, UNPROVEN, MONITOR or RETIRED"),
    Column(
        "name",
        pa.string(),
        "kind of the deviation; attempt or baseline for PROOF; class for UNPROVEN; empty else",
    ),
    Column(
        "count",
        pa.int64(),
        "times since the row before; the attempt for RELEASE, PROOF and UNPROVEN; 0 else",
    ),
    Column(
        "body",
        pa.string(),
        "the StreamInfo or the ProviderMonitor as JSON; the reason for UNPROVEN; null else",
        nullable=True,
    ),
    Column("at", _MOMENT, "our time when it was written"),
)
"""The columns of `stream_facts`: what `stream_health` needs and no record carries."""

TABLES: Final = {"changes": CHANGES, "quarantine": QUARANTINE, "stream_facts": FACTS}
"""The landing tables, by the name of their folder under the URL of the lake."""
MEANINGS: Final = {
    "changes": "Each record of the streams once for each time that it was read, with what an "
    "alignment began and swept. All other tables are made from it; rows are only added.",
    "quarantine": "What could not be read, as it was received.",
    "stream_facts": "What streams are, how they deviate, which held sweeps were released, what "
    "attempts have proven, what providers say of our reading, and which streams were retired.",
}
"""What each is; the description of the table."""


def arrow_schema(columns: Iterable[Column]) -> pa.Schema:
    """The columns for Arrow."""
    return pa.schema([pa.field(c.name, c.type, nullable=c.nullable) for c in columns])


def described_schema(columns: Iterable[Column]) -> pa.Schema:
    """The columns for Arrow, each with its meaning, as a new table takes it."""
    columns = tuple(columns)
    meanings = ({"comment": _comment(column.meaning)} for column in columns)
    return pa.schema(map(pa.Field.with_metadata, arrow_schema(columns), meanings))


def ddl(columns: Iterable[Column]) -> str:
    """The columns for `CREATE TABLE … (…) USING delta`, and for readers that want a schema."""
    return ", ".join(
        f"`{c.name}` {_DDL[c.type]}{'' if c.nullable else ' NOT NULL'} "
        f"COMMENT {comment_literal(c.meaning)}"
        for c in columns
    )


def comment_literal(meaning: str) -> str:
    """SQL for the text of a COMMENT."""
    return f"'{_comment(meaning)}'"


def _comment(meaning: str) -> str:
    # COMMENT takes no expression, and engines differ in escapes.
    return meaning.replace("'", "\N{RIGHT SINGLE QUOTATION MARK}")
