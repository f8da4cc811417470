"""What is derived from records: tables that a store keeps beside the entities.

A derivation is what an entry point of `instep.derivations` names, or a mapping of names to several.
It is pure: it is given a batch and what stood before, and returns what changes in its tables. The
store has the rest of its life: it makes the tables, applies the changes in the transaction of the
commit, trims the tables, builds them anew when the version changes, and removes what is turned off.

There are three kinds. A `StatementDerivation` sees every committed record in order; an
`EntityDerivation` sees each stored entity that has changed, whatever changed it; a `ReadyTable` is
a mapping of the members of an entity to columns, for which no function is needed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, ClassVar, TypeAlias

import msgspec

from instep.model.records import Record

__all__ = [
    "Changes",
    "Column",
    "ColumnType",
    "Derivation",
    "EntityColumns",
    "EntityDerivation",
    "EntityTable",
    "Index",
    "ProjectedEntity",
    "Query",
    "ReadyTable",
    "ReplaceRule",
    "Row",
    "Source",
    "StatementDerivation",
    "StatementTable",
    "Statements",
    "Update",
    "View",
    "ViewColumn",
    "key_of_entity",
    "uuid_of_entity",
]

Row: TypeAlias = tuple[Any, ...]
"""The values of a row, in the order of the columns of its table."""


class ColumnType(StrEnum):
    """The types that each store and each lake has."""

    TEXT = "text"
    INTEGER = "integer"
    """32 bits."""
    LONG = "long"
    """64 bits."""
    FLAG = "flag"
    """0 or 1."""
    BYTES = "bytes"


class Column(msgspec.Struct, frozen=True):
    """One column of a table."""

    name: str
    type: ColumnType = ColumnType.TEXT
    nullable: bool = False


class Index(msgspec.Struct, frozen=True):
    """An index of a table: of all its rows, or of those with no value in one column."""

    name: str
    columns: tuple[str, ...]
    where_null: str = ""


class ReplaceRule(msgspec.Struct, frozen=True):
    """When a row takes the place of the one that has its key: if it is higher in `rank`; or equal
    in it, and not older (`at`) than a row of the same `lineage`.
    """

    rank: str
    at: str
    lineage: str


class _Table(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    """Columns that no two rows share; in a `StatementTable` within one stream, in an `EntityTable`
    within one entity.
    """
    indexes: tuple[Index, ...] = ()


class StatementTable(_Table, frozen=True, kw_only=True):
    """A table of a `StatementDerivation`. The store adds `id`, which grows, and `stream_no`."""

    latest: str = ""
    """A number that grows with each row of one `key`, the entity-key: the row with the highest
    stands, and is given to `derive`. Empty: no row is needed, `replaced` decides.
    """
    open: str = ""
    """A column without value in what lasts: such a row is told of sweeps, and not trimmed."""
    replaced: ReplaceRule | None = None
    retention: str = ""
    """The option with the number of newest rows that are kept; empty: all."""
    most_rows: int = 2
    """Of one statement, mostly: more are trimmed than are written."""


class EntityTable(_Table, frozen=True, kw_only=True):
    """A table of an `EntityDerivation`. The store adds `entity_id`, `stream_no` and `since_us`, and
    removes the rows of an entity with it.
    """

    target: str = ""
    """The column with the uuid of another entity, which `since_us` is reset with when it ends."""


class ViewColumn(msgspec.Struct, frozen=True):
    """One column of a view: an expression over the row `r`, its stream `s` (consumer, stream) and
    in a view of an `EntityTable` its entity `e`.
    """

    name: str
    expression: str
    shown_as: str = ""
    """`time` for microseconds since 1970, `flag` for 0 and 1, `json` for bytes."""


class View(msgspec.Struct, frozen=True):
    """A view whose columns are public."""

    name: str
    table: str
    columns: tuple[ViewColumn, ...]
    join: str = ""
    where: str = ""


class Query(msgspec.Struct, frozen=True):
    """What a reader of a SQL store asks, page by page.

    `sql` has `{more}` where its conditions go on. It may use the tables of the derivation, and
    `instep_stream` (id, consumer, stream) and `instep_entity`.
    """

    sql: str
    filters: Mapping[str, str] = {}
    """Name → condition, in which `:name` is the value."""
    order: Mapping[str, tuple[str, Any]] = {}
    """Column of the result → its expression, and a value before the first. Empty: one page."""


class Update(msgspec.Struct, frozen=True):
    """New values of rows that stood before: in each row those of `columns`, and its `id`."""

    table: str
    columns: tuple[str, ...]
    rows: Sequence[Row]


class Changes(msgspec.Struct, frozen=True):
    """What changes in the tables of a derivation."""

    inserted: Mapping[str, Sequence[Row]] = {}
    """Table → new rows. With `replaced`, no two of one key."""
    updated: Sequence[Update] = ()


class Statements(msgspec.Struct, frozen=True):
    """The records of one commit that a derivation follows, in order, and how they were read."""

    records: Sequence[Record]
    lineage: int
    """The log that they are of (A3)."""
    attempt: int
    now_us: int
    """Our time plus the offset of the provider's clock."""
    options: Any
    """The derivation's own, as the consumer of the stream has them."""
    compaction_delay_s: float | None = None
    """None: the log is not compacted."""
    stored: bool = False
    """They are the last ones of stored entities, and others may have been before: the derivation
    was turned on only now.
    """


class EntityColumns(msgspec.Struct, frozen=True):
    """Stored entities, column by column."""

    keys: Sequence[str]
    classes: Sequence[str]
    uuids: Sequence[str]
    envelopes: Sequence[bytes]
    bodies: Sequence[bytes]


class Derivation:
    """What each derivation of tables states."""

    name: ClassVar[str]
    """Of the derivation, and of the option that turns it on."""
    version: ClassVar[str]
    """Another one builds the tables anew, beside the old ones."""
    words: ClassVar[str]
    """What it keeps, for errors: "episodes of alarms"."""
    classes: ClassVar[frozenset[str]] = frozenset()
    """The entity classes that it follows; empty: all."""
    options: ClassVar[type[msgspec.Struct]]
    """Its keys of the sink: a `bool | None` of its name, with a text below each."""
    views: ClassVar[tuple[View, ...]] = ()
    queries: ClassVar[Mapping[str, Query]] = {}
    """Of `StoreReader.derived`, by name; the first one is "" ."""


class StatementDerivation(Derivation, ABC):
    """Follows every committed record of its classes, in order.

    Promised to it: `derive` and the others run in the transaction that commits the records, never
    twice for what was committed. It must be pure: no I/O, no clock, nothing kept.
    """

    tables: ClassVar[tuple[StatementTable, ...]]
    ends_as: ClassVar[frozenset[str]] = frozenset()
    """The classes under which the end of an entity may come: a header-only end names none ("").
    Empty: ends are not followed.
    """

    @abstractmethod
    def derive(self, statements: Statements, before: Mapping[str, Sequence[Row]]) -> Changes:
        """What the records change. `before` has, by table, the rows that stand of the keys of the
        records: each with its `id` first.
        """

    def end_swept(self, table: str, rows: Sequence[Row], at_us: int) -> Changes:
        """End, at `at_us`, what lasted of entities that a sweep found to be gone (A5)."""
        return Changes()

    def doubt(self, table: str, rows: Sequence[Row]) -> Changes:
        """Mark what lasts of entities that a baseline could not prove."""
        return Changes()


class EntityDerivation(Derivation, ABC):
    """Follows the stored entities of its classes."""

    tables: ClassVar[tuple[EntityTable, ...]]

    @abstractmethod
    def derive(self, entities: EntityColumns) -> Iterable[Sequence[Sequence[Row]]]:
        """For each entity, the rows of each table. Must be pure."""


class ProjectedEntity(msgspec.Struct, frozen=True):
    """What a function that computes a column of a projection is given."""

    consumer: str
    stream: str
    key: str
    entity_class: str
    uuid: str
    """Empty where the entity has none."""
    body: Any
    """The decoded JSON of the entity itself."""
    envelope: Any
    """The decoded JSON of the rest of its record (event time, parent address …)."""


Source: TypeAlias = str | tuple[str, ...] | Callable[[ProjectedEntity], Any]
"""The value of a column: a JSON Pointer (RFC 6901) into the body, several of which the first that
has a value counts, or a function."""


class ReadyTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table with one row for each entity of a class. A user of a SQL store names it in the option
    `projections`.
    """

    name: str
    entity_class: str
    columns: Mapping[str, Source]
    flags: frozenset[str] = frozenset()
    """The columns that are truth values; the others are texts."""
    indexed: tuple[str, ...] = ("uuid",)


def key_of_entity(entity: ProjectedEntity) -> str:
    """The source of a column with the entity-key."""
    return entity.key


def uuid_of_entity(entity: ProjectedEntity) -> str:
    """The source of a column with the uuid."""
    return entity.uuid
