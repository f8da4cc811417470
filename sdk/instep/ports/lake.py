"""What a derivation brings to a lake: how envelopes are read, tables, and views over them.

An entry point of `instep.derivations` names a `LakeDerivation`. All of it is data, pure functions
and texts of Spark SQL: the lake has the pipeline, the rules and the engines. Where a part has both
a function and SQL, the lake calls the function for rows that it holds itself, and runs the SQL
where Spark computes in bulk. Both must say the same of every row: what a table holds must not
depend on how the rows were cut into batches (L1).

The SQL of tables reads the columns of `changes`, above all `class`, `body`, `envelope`,
`parent_address`, `event_at` and `appended_at`.

Ready answers are defined once for all engines: *readings* say which members of a body are columns,
and each engine reads JSON in its own way; *views* and *functions* are queries over them, in the SQL
that Spark and DuckDB have in common.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

__all__ = [
    "EnvelopeColumns",
    "LakeColumn",
    "LakeDerivation",
    "LakeEntityTable",
    "LakeEpisodeTable",
    "LakeFunction",
    "LakeList",
    "LakeMember",
    "LakeReading",
    "LakeView",
    "TypedClass",
    "TypedColumn",
    "TypedModel",
]


class LakeColumn(NamedTuple):
    """One column of a table of a lake."""

    name: str
    type: str
    """As Spark's DDL names it."""
    meaning: str


class LakeView(NamedTuple):
    """One view of a lake."""

    name: str
    meaning: str
    sql: str
    """A query over other views and tables, by their names; one that is an answer speaks the SQL
    that engines have in common (`instep_spark.answers.dialects`)."""
    columns: tuple[tuple[str, str], ...] = ()
    """Each column with its comment; none: as the query names them."""


class LakeFunction(NamedTuple):
    """A question with a time in it: a view with parameters."""

    name: str
    meaning: str
    parameters: tuple[tuple[str, bool], ...]
    """The name of each, a time, and whether it may be left out: it is null then."""
    sql: str
    """As that of a view. A name of a parameter stands for its value, and is no column's."""


class LakeMember(NamedTuple):
    """A column of a reading: a member of a JSON object."""

    name: str
    paths: tuple[tuple[str, ...], ...]
    """Names of members, without modules, that lead to it; the first path that states it counts.
    A step `[0]` is the first one of a list. No path: the entity's own uuid."""
    kind: Literal["text", "number", "identity", "word", "texts"] = "text"
    """text: as it is, or JSON. number: DOUBLE. identity: its short form, without module and
    `prefix`. word: the first word in capitals. texts: the last step of each member of a list."""
    prefix: str = ""
    parent: str = ""
    """In place of paths: the uuid of the entity of this kind, such as `node`, in the
    parent-address."""


class LakeList(NamedTuple):
    """A list in a body that a reading has a row for each member of."""

    position: str
    """The column with the place in the list, counted from 0."""
    paths: tuple[tuple[str, ...], ...]
    """As those of `LakeMember`, from the body, or from a member of the list before."""


class LakeReading(msgspec.Struct, frozen=True, kw_only=True):
    """Members of the bodies of some classes as columns, behind consumer, stream, id, key and class:
    what answers are made of. A row for each entity, or for each member of its lists.
    """

    name: str
    meaning: str
    classes: tuple[str, ...]
    """None: all."""
    members: tuple[LakeMember, ...]
    """Of the entity."""
    lists: tuple[LakeList, ...] = ()
    """Each within a member of the one before."""
    listed: tuple[LakeMember, ...] = ()
    """Of a member of the innermost list."""
    history: bool = False
    """Of `entity_history`, with ordinal, valid_from, valid_to, valid_to_basis and open, in place of
    `entities`."""


class EnvelopeColumns(NamedTuple):
    """What envelopes state, each list in their order; None where one does not state it."""

    event_times: Sequence[str | None]
    """Of the event, as its provider spells it."""
    parent_addresses: Sequence[bytes | None]
    """As JSON."""


Readings: TypeAlias = Mapping[str, Sequence[Any]]
"""Column → its value for each statement."""


class LakeEpisodeTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table of what lasts: a row is open from the statement that begins it to the one that ends
    it, or to a sweep. One row at most of an entity is open.

    The lake adds whose row it is, the place of its last statement and of its end, and `open`.
    """

    name: str
    meaning: str
    entity_class: str
    """Of the statements that begin and change rows. Ends of any class count: many name none."""
    columns: tuple[LakeColumn, ...]
    """`ended_by` among them: DELETE, TOMBSTONE, CLEAR (any other statement that ends) or SWEEP."""
    checks: tuple[str, ...] = ()
    """SQL that is true of every row."""
    clustered_by: tuple[str, ...] = ()
    stated: Mapping[str, str]
    """What is read from one statement: name → type in Spark's DDL, STRING or BOOLEAN. All but
    `left_out` are columns of the table."""
    left_out: str
    """The one that tells that a statement begins and changes nothing."""
    read: Callable[[Sequence[str | None], Sequence[str | None]], Readings]
    """Reads bodies and parent-addresses, both JSON: each of `stated`, by statement. Pure."""
    read_sql: str
    """The same: a struct of `stated`, over `body` and `parent_address`."""
    left_out_sql: str
    """False only where no statement can be left out: spares Spark a reading."""
    gathered: Mapping[str, str]
    """Columns of an open row from which its next statements go on: name → type."""
    remembered: Mapping[str, tuple[str, str]]
    """What the next row of an entity needs of its closed ones: name → the column, and the one that
    is largest in the row to take it from."""
    sql: str
    """The query of what statements cause: a row for each row of the table that is new or changes.

    It reads `statements`, the open rows of their entities among them, by entity in the order of
    `ordinal`; repeated ones are left out. Each has consumer, stream, id, `ordinal`, `happened_at`
    (of the event, else when it was appended), `happened_spread`, `ends`, `stated`, and `known`: it
    is an open row, with what is `gathered` in `kept`. It may join `instep_closed`, which has what
    is `remembered` of an entity.

    It returns consumer, stream, id, `known`, the columns of the table that are not `stated`, and
    `last` and `end`: the last statement before the end, and the end, null while there is none.
    `{last}` and `{end}` stand for the structs that are chosen for these; `{end}` has `at` and
    `spread`. The lake adds what is `stated`."""
    ended: Mapping[str, str] = {}
    """What of `stated` a row that is over has instead: column → SQL."""
    closing: Mapping[str, str]
    """What a sweep sets in an open row `t`: column → SQL, in which `{at}` stands for the time by
    which the entity was gone."""
    begin: str
    """The column with the ordinal of the statement that began a row …"""
    begin_at: str
    """… that with the time when it began …"""
    end_at: str
    """… and that with the time of its end."""
    intervals: str
    """The name of the view that shows the rows with their proof."""
    noun: str
    """What one row is, with its article."""


class LakeEntityTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table of the entities of some classes that exist, with columns of its own."""

    name: str
    meaning: str
    classes: tuple[str, ...]
    columns: tuple[LakeColumn, ...]
    clustered_by: tuple[str, ...] = ()
    once: Mapping[str, str] = {}
    """What several columns are made of: name → SQL."""
    values: Mapping[str, str]
    """Column → SQL, which may name `once`."""


class TypedColumn(msgspec.Struct, frozen=True, omit_defaults=True):
    """One column of a typed class."""

    name: str
    path: tuple[str, ...]
    """Names of the members that lead to it, without modules."""
    type: str
    """As Spark's DDL names it; JSON for a list, which stays text."""
    unit: str = ""
    values: tuple[str, ...] = ()
    """Of an enumeration, or the identities that the modules derive."""
    open: bool = False
    """Other modules may derive more identities, so an unknown value is none that is bad."""
    meaning: str = ""


class TypedClass(msgspec.Struct, frozen=True):
    """A class whose members are known by name and type."""

    meaning: str
    columns: tuple[TypedColumn, ...]


class TypedModel(msgspec.Struct, frozen=True):
    """The classes of a data model."""

    modules: list[str]
    classes: dict[str, TypedClass]


class LakeDerivation(msgspec.Struct, frozen=True, kw_only=True):
    """All that a protocol brings to a lake."""

    read_envelopes: Callable[[Sequence[bytes]], EnvelopeColumns]
    """Pure. An envelope that it cannot read states nothing."""
    read_time: Callable[[str | None], int | None]
    """Microseconds since 1970 of an event time; None for what is no time. Pure."""
    event_sql: str
    """How sure the event time is: a struct over `envelope` with `event_spread` (STRING),
    `event_start_at` (TIMESTAMP) and `event_precision` (STRING)."""
    episodes: tuple[LakeEpisodeTable, ...] = ()
    entities: tuple[LakeEntityTable, ...] = ()
    readings: tuple[LakeReading, ...] = ()
    views: tuple[LakeView, ...] = ()
    """Each behind those that it reads."""
    functions: tuple[LakeFunction, ...] = ()
    typed: Callable[[], TypedModel] | None = None
    """Reads the classes that get typed views and tables; called when first asked for."""
