"""What the tables of the pipeline hold: one list of columns for Spark's DDL and for the reference.

All times are UTC; all durations are in seconds (`_s`). The columns hold all that a row means:
whoever reads Delta reads the tables without instep.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from instep.alignment.lag import Fidelity
from instep.ports.lake import LakeEntityTable, LakeEpisodeTable
from instep.sequencing.ends import NumberEnd
from instep_spark.derivations import ENTITY_TABLES, EPISODE_TABLES
from instep_spark.landing_schema import comment_literal

__all__ = [
    "FEED_PROPERTY",
    "LAKE_TABLES",
    "VERSION_PROPERTY",
    "Column",
    "TableSchema",
    "projection_schema",
    "reference",
]

VERSION_PROPERTY: Final = "instep.lake"
"""Of a table: `LAKE_VERSION`."""
FEED_PROPERTY: Final = "delta.enableChangeDataFeed"
_LINK: Final = re.compile(r"\[([^]]*)\]\([^)]*\)")
_RULES: Final = "../topics/alignment.md#the-rules"


class Column(NamedTuple):
    """One column of a table."""

    name: str
    type: str
    """As Spark's DDL names it."""
    meaning: str
    required: bool = False
    """NOT NULL."""

    def ddl(self) -> str:
        """The column for `CREATE TABLE … (…)`."""
        null = " NOT NULL" if self.required else ""
        return f"`{self.name}` {self.type}{null} COMMENT {comment_literal(self.meaning)}"


class TableSchema(NamedTuple):
    """One table of the pipeline."""

    name: str
    meaning: str
    columns: tuple[Column, ...]
    partitioned_by: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    """SQL that is true of every row; Delta refuses a commit with another one."""
    clustered_by: tuple[str, ...] = ()
    """Columns by which rows are near each other in the files of a large table: what readers ask
    for, so that they pass over the other files."""

    @property
    def constraints(self) -> dict[str, str]:
        """The checks by the names of their constraints."""
        return {f"{self.name}_{number}": sql for number, sql in enumerate(self.checks, 1)}

    @property
    def constraint_properties(self) -> str:
        """SQL: what a new table adds to its TBLPROPERTIES, so that its constraints need no commit
        of their own.
        """
        named = self.constraints.items()
        return "".join(f", 'delta.constraints.{name}' = \"{sql}\"" for name, sql in named)

    def ddl(self) -> str:
        """The columns for `CREATE TABLE … (…)`, each with its meaning."""
        return ", ".join(column.ddl() for column in self.columns)

    @property
    def comment(self) -> str:
        """SQL: the meaning of the table, for catalogues."""
        return comment_literal(_LINK.sub(r"\1", self.meaning))


def _one_of(column: str, *values: str) -> str:
    """SQL: the column has one of these values, or none."""
    known = ", ".join(f"'{value}'" for value in values)
    return f"{column} IS NULL OR {column} IN ({known})"


_ENDS: Final = ("DELETE", "TOMBSTONE", "CLEAR", "SWEEP")
_WHOSE: Final = (
    Column("consumer", "STRING", "name of the consumer", required=True),
    Column("stream", "STRING", "id of the stream", required=True),
    Column(
        "id",
        "STRING",
        "what tells entities of the stream apart: the uuid where the stream is joined with a "
        "baseline, else the entity-key; where entities share a uuid, the first one has it, and "
        "others have their keys",
        required=True,
    ),
    Column("key", "STRING", "entity-key"),
)
_PLACE: Final = (
    Column("token", "STRING", "token of the statement; empty for a row of a baseline"),
    Column("lineage", "BIGINT", "count of the logs read: append times compare within one only"),
    Column("partition", "STRING", "partition of the log; empty where the provider names none"),
    Column("record_offset", "BIGINT", "place within the partition; -1 where none is stated"),
    Column("appended_at", "TIMESTAMP", "log-append-time-stamp of the statement"),
    Column("event_at", "TIMESTAMP", "event-time-stamp of the statement; null where none is known"),
    Column("ordinal", "BIGINT", "row of `changes` that holds the statement"),
    Column("attempt", "BIGINT", "last alignment attempt that stated the entity so"),
)
_EVENT: Final = (
    Column(
        "event_spread",
        "STRING",
        "AT, BEFORE or AFTER `event_at`, or BETWEEN `event_start_at` and it; null: not stated",
    ),
    Column("event_start_at", "TIMESTAMP", "start-time-stamp: the event came after it; or null"),
    Column(
        "event_precision",
        "STRING",
        "clock of the event's source: SYNCHRONIZED, FREE_RUNNING or UNKNOWN; null: not stated",
    ),
)
"""How sure the event time is."""
_CONTENT: Final = (
    Column("parent_address", "STRING", "parent-address as JSON; null where the record has none"),
    Column("uuid", "STRING", "the entity's own uuid, in a stream joined with a baseline; or empty"),
    Column("body", "STRING", "the entity as JSON, as the provider stated it"),
    Column("envelope", "STRING", "the rest of the log-record-body as one JSON object"),
)
_END: Final = (
    Column("end_ordinal", "BIGINT", "row of `changes` that ended it; null while it lasts"),
    Column(
        "end_lineage",
        "BIGINT",
        "lineage of the DELETE, TOMBSTONE or CLEAR that ended it; null where none did",
    ),
    Column("end_partition", "STRING", "partition of that statement"),
    Column("end_record_offset", "BIGINT", "its place within the partition, or -1"),
    Column("end_appended_at", "TIMESTAMP", "its log-append-time-stamp"),
)
"""The end is remembered: an older statement that is read again opens nothing (L1)."""
_CLASS: Final = Column("class", "STRING", "record-content, such as NODE")

ENTITIES: Final = TableSchema(
    "entities",
    f"What exists now: one row an entity, removed when the entity ends ([A3 to A6]({_RULES})).",
    (
        *_WHOSE,
        _CLASS,
        *_PLACE,
        *_EVENT,
        *_CONTENT,
        Column("proven", "BOOLEAN", "false: a later attempt could neither confirm nor refute it"),
    ),
    clustered_by=("class",),
)
HISTORY: Final = TableSchema(
    "entity_history",
    "What was when: one row a statement with the interval in which it held. The intervals of an "
    "entity do not overlap and leave no hole while it exists.",
    (
        *_WHOSE,
        _CLASS,
        *_PLACE,
        *_EVENT,
        Column("valid_from", "TIMESTAMP", "from when it held, by the provider's append times"),
        Column("valid_to", "TIMESTAMP", "until when, exclusive; null while it holds"),
        Column(
            "valid_to_basis",
            "STRING",
            "STATED: the provider's append time of what ended it. SWEPT: our time when the attempt "
            "began that no longer found it, so it was gone by then; null while it holds",
        ),
        Column(
            "ended_by",
            "STRING",
            "what ended it: UPDATE, DELETE, TOMBSTONE, CLEAR, or SWEEP (it was gone at `valid_to` "
            "at the latest); null while it holds",
        ),
        *_END,
        *_CONTENT,
        Column("open", "BOOLEAN", "whether it holds now"),
    ),
    ("open",),
    (
        "(open <=> (valid_to IS NULL)) AND (open <=> (ended_by IS NULL))",
        "valid_to IS NULL OR valid_to >= valid_from",
        _one_of("ended_by", "UPDATE", *_ENDS),
        _one_of("valid_to_basis", "STATED", "SWEPT"),
    ),
    ("class", "valid_from"),
)
HEALTH: Final = TableSchema(
    "stream_health",
    f"How each stream was followed, minute by minute of our time ([A6, A8 and A10]({_RULES})).",
    (
        *_WHOSE[:2],
        Column("minute", "TIMESTAMP", "begin of the minute, by `committed_at`"),
        Column("ordinal", "BIGINT", "last row of `changes` in it"),
        Column("records", "BIGINT", "records in it"),
        Column("timed_records", "BIGINT", "those of the log: rows of a baseline have no delay"),
        Column("read_delay_s", "DOUBLE", "mean of committed minus appended, in seconds"),
        Column("worst_read_delay_s", "DOUBLE", "the largest, in seconds"),
        Column(
            "zone",
            "STRING",
            "of the largest: full fidelity, reduced fidelity, at risk or lost (TR-548 3.17.3)",
        ),
        Column("attempt", "BIGINT", "alignment attempt at its end"),
        Column("realignments", "BIGINT", "attempts opened in it"),
        Column("sweeps", "BIGINT", "sweeps that came due in it"),
        Column("sweep_held", "STRING", "`unmarked of total` where a sweep was held in it, or null"),
        Column("deviations", "BIGINT", "deviations of the provider counted in it"),
        Column(
            "left_out",
            "BIGINT",
            "CHANGE_ONLY records in it (TR-548 3.8.2.2) that could not be joined to anything; "
            "`composed` says why",
        ),
    ),
    checks=("records >= 0 AND realignments >= 0 AND sweeps >= 0", _one_of("zone", *Fidelity)),
)
MESSAGES: Final = TableSchema(
    "messages",
    "Delivered messages of numbered sequences, in the order of delivery.",
    (
        *_WHOSE[:2],
        Column("cursor", "BIGINT", "order of delivery within the store"),
        Column("number", "BIGINT", "number in the sequence; -1 for one without"),
        Column("id", "STRING", "id of the message"),
        Column("sender", "STRING", "who sent it"),
        Column("received_at", "TIMESTAMP", "when it was durable here"),
        Column("delivered_at", "TIMESTAMP", "when it was delivered"),
        Column("body", "STRING", "its content"),
        Column("attachments", "STRING", "what came with it, a JSON array; NULL: nothing"),
    ),
)
SEQUENCE_NUMBERS: Final = TableSchema(
    "sequence_numbers",
    "What became of the numbers of numbered sequences: a row for each range that ended alike. "
    "Numbers without a row are missing, or held.",
    (
        *_WHOSE[:2],
        Column("epoch", "BIGINT", "which count of the sequence: it grows with each reset"),
        Column("low", "BIGINT", "first number of the range"),
        Column("high", "BIGINT", "its last number"),
        Column("outcome", "STRING", "how they ended"),
        Column("reason", "STRING", "why; empty for what was delivered as usual"),
        Column("decided_by", "STRING", "sender, receiver or operator; empty: nobody had to"),
        Column("told", "STRING", "whether the sender was told by a fault: owed, sent, not-sent"),
        Column("decided_at", "TIMESTAMP", "when it was decided; NULL for what was delivered"),
    ),
    checks=(
        "low <= high",
        _one_of("outcome", *(end for end in NumberEnd if end is not NumberEnd.SUPERSEDED)),
    ),
)

RECONCILIATION: Final = TableSchema(
    "reconciliation",
    "What each `instep lake audit` has found: a row for each verdict on entities of a stream. A "
    "row is never changed.",
    (
        *_WHOSE[:2],
        Column("at", "TIMESTAMP", "when the comparison began, by our time", required=True),
        Column("against", "STRING", "URL of the lake with the other reading of the logs"),
        Column(
            "verdict",
            "STRING",
            "right, stale (other content), bogus (the provider does not have it), missing, or "
            "undecided (one side has read on, and knows something newer)",
            required=True,
        ),
        Column("entities", "BIGINT", "how many entities it is true of", required=True),
        Column("ids", "ARRAY<STRING>", "some of those that are not right"),
    ),
    checks=(
        _one_of("verdict", "right", "stale", "bogus", "missing", "undecided"),
        "entities >= 0",
    ),
)

COMPOSED: Final = TableSchema(
    "composed",
    "What the statements of CHANGE_ONLY streams amount to (TR-548 3.8.2.2): the whole entity in "
    "place of each change to it. The other tables are made of it where a stream states changes "
    "only; without such a stream it is not there.",
    (
        *_WHOSE,
        _CLASS,
        *_PLACE,
        Column(
            "kind",
            "STRING",
            "CREATE_UPDATE, DELETE or TOMBSTONE of the entity; UNRESOLVED for a change that could "
            "not be joined to anything: `body` says why",
        ),
        Column("ends", "BOOLEAN", "the statement ends the entity"),
        Column("committed_at", "TIMESTAMP", "our time when the commit to `changes` began"),
        *_CONTENT,
        Column("last", "BOOLEAN", "whether it is the last row of an entity that exists"),
        Column("names", "ARRAY<STRING>", "of a last row: keys and uuids that speak of the entity"),
        Column("oldest_attempt", "BIGINT", "of a last row: the first attempt that stated a change"),
        Column("state", "STRING", "of a last row: what the pipeline needs to go on, as JSON"),
    ),
    ("last",),
    (_one_of("kind", "CREATE_UPDATE", "DELETE", "TOMBSTONE", "UNRESOLVED"),),
)

IDENTITIES: Final = TableSchema(
    "identities",
    "Which rows of `changes` are about one entity, in streams that are joined with a baseline "
    f"([A13]({_RULES})). Without such a stream it is not there. What is known of an entity "
    "outlives it, and rows are only added.",
    (
        *_WHOSE,
        _CLASS,
        Column("uuid", "STRING", "the entity's own uuid"),
        Column("ordinal", "BIGINT", "row of `changes` that told it"),
        Column("above", "STRING", "its parent-address, joined by `+`; empty where none was stated"),
        Column("places", "ARRAY<STRING>", "its direct parents; a baseline may state several"),
        Column("claimed", "BOOLEAN", "whether the stream has stated it: `key` is the stream's"),
        Column("known", "BOOLEAN", "the row tells what is known of the entity from `ordinal` on"),
        Column(
            "resolved",
            "BOOLEAN",
            "the row of `changes` is about this `id`, which neither its uuid nor its key tells",
        ),
        Column(
            "parent_address",
            "STRING",
            "of a `resolved` row about several entities: that of this one, as JSON; null else",
        ),
    ),
)


def projection_schema(name: str, meaning: str, columns: Iterable[Column]) -> TableSchema:
    """The schema of a table of entities that exist, with these columns beside those of each."""
    return TableSchema(name, meaning, (*_WHOSE, _CLASS, *_PLACE, *columns))


def _episodes_schema(derived: LakeEpisodeTable) -> TableSchema:
    own = (*_WHOSE, *_PLACE, *_EVENT, *(Column(*column) for column in derived.columns))
    digest = Column("digest", "BIGINT", "of the last statement's body: tells one that is repeated")
    return TableSchema(
        derived.name,
        derived.meaning,
        (*own, digest, *_END, Column("open", "BOOLEAN", "whether it lasts")),
        ("open",),
        derived.checks,
        derived.clustered_by,
    )


def _entities_schema(derived: LakeEntityTable) -> TableSchema:
    columns = (Column(*column) for column in derived.columns)
    schema = projection_schema(derived.name, derived.meaning, columns)
    return schema._replace(clustered_by=derived.clustered_by)


LAKE_TABLES: Final = {
    table.name: table
    for table in (
        *(ENTITIES, HISTORY),
        *map(_episodes_schema, EPISODE_TABLES),
        *map(_entities_schema, ENTITY_TABLES),
        *(HEALTH, MESSAGES, SEQUENCE_NUMBERS, RECONCILIATION, COMPOSED, IDENTITIES),
    )
}
"""The tables of the pipeline, by the name of their folder under the URL of the lake."""


def reference() -> Iterator[str]:
    """The reference page of the tables, as Markdown, table by table."""
    for table in LAKE_TABLES.values():
        rows = "\n".join(f"| `{c.name}` | {c.type} | {c.meaning} |" for c in table.columns)
        yield (
            f"## `{table.name}`\n\n{table.meaning}\n\n"
            f"| Column | Type | Meaning |\n| --- | --- | --- |\n{rows}"
        )
