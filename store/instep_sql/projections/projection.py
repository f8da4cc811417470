"""How a table of the user is filled from entities: pure."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final, TypeAlias

import msgspec
from sqlalchemy import JSON, BigInteger, Column, Dialect, FromClause, Table
from sqlalchemy.schema import CreateTable

from instep.errors import ConfigurationError
from instep.ports.derivation import ProjectedEntity
from instep_sql.names import check_name

__all__ = [
    "ENTITY_ID",
    "Field",
    "Projection",
    "RowsSource",
    "Source",
    "ValueRefusedError",
    "converter",
    "fields_of",
    "python_type",
    "tokens_of",
]

ENTITY_ID: Final = "entity_id"
_INTEGER_BITS: Final = 63
_SHOWN_CHARACTERS: Final = 80
_TYPES: Final[dict[type | None, str]] = {
    str: "text",
    bool: "boolean",
    int: "whole number of 64 bits",
    float: "number",
    Decimal: "number",
    datetime: "time (ISO 8601)",
    dict: "JSON",
}
"""The Python types of columns that can be filled, and what a value of them is called."""


class ValueRefusedError(ValueError):
    """A value that its column cannot hold. The row is left out, and the reason is kept."""


class Field(msgspec.Struct, frozen=True):
    """The value of a column: what stands at a place in the body."""

    pointer: str
    """A JSON Pointer (RFC 6901) into the body, such as `/layer-qualifier` or `/name/0/value`."""
    default: Any = None
    """The value where the body has nothing there."""


Source: TypeAlias = str | tuple[str, ...] | Field | Callable[[ProjectedEntity], Any]
"""The value of a column: a JSON Pointer, several of which the first that has a value counts, a
`Field`, or a function. What a function raises is the reason why the row is left out."""


RowsSource: TypeAlias = Callable[[ProjectedEntity], Iterable[Mapping[str, Any]]]
"""Any number of rows of an entity, each as column → value, `entity_id` excepted. What it raises is
the reason why all rows of the entity are left out."""


class Projection:
    """A table of the user, with a row for each entity of some classes, or with any number of rows.

    Promised:

    - The rows are written, changed and removed in the transaction that commits the entities, by
      commits, sweeps, replays and repairs alike: a reader sees both or none.
    - If the table cannot hold a row, all rows of that entity are left out, and the reason is kept
      (`SqlReader.projection_errors`) until the entity changes. Other entities, the stream and its
      position are not concerned.
    - The table is created if it does not exist, and built again from the stored entities when its
      columns, its mapping or `version` change.
    - A table that migrations of the user have made is filled if it is empty and has what is needed.
      It is never altered nor dropped: where something changes, its rows are written again.

    - A table may refer to the table of another projection by its `entity_id`, with ON DELETE
      CASCADE. The store writes both in the order of their keys. It refuses to open with any other
      foreign key to the table of a projection.

    Not promised: rows of a process that does not declare the projection, before one that does
    declare it opens the store.

    Raises `ConfigurationError` for a table or a mapping that cannot serve.

    The primary key of the table is the column `entity_id` (`BigInteger`). With several rows of an
    entity the key begins with `entity_id`, or an index does. The store replaces the rows of an
    entity when it changes, so no one else writes into the table. A column without a source has its
    default, or NULL, after each change.

    - `table`: The table, or the class that is mapped to it.
    - `classes`: For each class the source of each column, `entity_id` excepted; or a function that
      returns all rows of an entity.
    - `version`: Raise it when a function of the mapping changes its meaning: that cannot be seen.
    """

    def __init__(
        self,
        table: FromClause | type[Any],
        classes: Mapping[str, Mapping[str, Source] | RowsSource],
        *,
        version: int = 1,
    ) -> None:
        self.table = _table_of(table)
        self.name = self.table.name
        self.classes: dict[str, dict[str, Source]] = {}
        self.version = version
        self._columns: dict[str, Column[Any]] = dict(self.table.columns.items())
        self._rows_sources: dict[str, RowsSource] = {}
        for name, sources in classes.items():
            if callable(sources):
                self._rows_sources[name] = sources
            self.classes[name] = {} if callable(sources) else dict(sources)
        self._check()
        referred = {key.target_fullname.split(".")[-2] for key in self.table.foreign_keys}
        self.parents = referred - {str(self.name)}
        """The other tables to which this one has a foreign key."""
        self._readers = {
            name: [
                (
                    column,
                    _reader(source),
                    _EXACT.get(python_type(self._columns[column])),
                    converter(self._columns[column]),
                )
                for column, source in sources.items()
            ]
            for name, sources in self.classes.items()
        }

    def _check(self) -> None:
        where = f"the projection {self.name!a}"
        check_name(self.name, "a table", where, "projections")
        for name in self._columns:
            check_name(name, "a column", where, "projections")
        for name in self.classes:
            check_name(name, "a class", where, "projections")
        if self.name.startswith("instep_"):
            raise ConfigurationError(
                "the names instep_… are those of the store", where=where, hint="name it otherwise"
            )
        if self.table.schema is not None:
            raise ConfigurationError(
                "its table names a schema",
                where=where,
                hint="leave it out: the table stands in the schema of the store",
            )
        self._check_key(where)
        self._check_deferred(where)
        if not self.classes:
            raise ConfigurationError(
                "it has no class", where=where, hint='for example {"NODE": {"uuid": "/uuid"}}'
            )
        self._check_sources(where)

    def _check_key(self, where: str) -> None:
        primary_key = [column.name for column in self.table.primary_key]
        if not self.has_many_rows and primary_key != [ENTITY_ID]:
            raise ConfigurationError(
                "its primary key is not the column 'entity_id'",
                where=where,
                hint='begin with Column("entity_id", BigInteger, primary_key=True)',
            )
        entity_id = self._columns.get(ENTITY_ID)
        if entity_id is not None and not isinstance(entity_id.type, BigInteger):
            raise ConfigurationError(
                f"its column 'entity_id' is {entity_id.type}, not BIGINT",
                where=where,
                hint="give it the type BigInteger, in your migration too",
            )
        indexes = [[column.name for column in index.columns] for index in self.table.indexes]
        if not any(columns[:1] == [ENTITY_ID] for columns in (primary_key, *indexes)):
            raise ConfigurationError(
                "neither its primary key nor an index begins with the column 'entity_id'",
                where=where,
                hint='write Column("entity_id", BigInteger, index=True, nullable=False)',
            )

    def _check_deferred(self, where: str) -> None:
        for constraint in self.table.constraints:
            if (constraint.initially or "").upper() == "DEFERRED":
                raise ConfigurationError(
                    "a constraint of its table is checked at the end of the commit, and would"
                    " refuse it as a whole",
                    where=where,
                    hint='leave out initially="DEFERRED"',
                )

    def _check_sources(self, where: str) -> None:
        for entity_class, sources in self.classes.items():
            for name, column in self._columns.items():
                filled = entity_class in self._rows_sources or name in {ENTITY_ID, *sources}
                if not filled and _needs_value(column):
                    raise ConfigurationError(
                        f"nothing fills its column {name!r} for the class {entity_class!r}",
                        where=where,
                        hint="give it a source or a default, or make it nullable",
                    )
        for sources in self.classes.values():
            for name, source in sources.items():
                if name not in self._columns or name == ENTITY_ID:
                    raise ConfigurationError(
                        f"its table has no column {name!r} to fill",
                        where=where,
                        hint=f"it has {', '.join(sorted({*self._columns} - {ENTITY_ID}))}",
                    )
                pointers = (field.pointer for field in fields_of(source) or ())
                bad = next((one for one in pointers if not one.startswith("/")), None)
                if bad is not None:
                    raise ConfigurationError(
                        f"{bad!r} is not a JSON Pointer (RFC 6901), for column {name!r}",
                        where=where,
                        hint='one begins with "/", for example "/layer-qualifier"',
                    )
                if python_type(self._columns[name]) not in _TYPES:
                    raise ConfigurationError(
                        f"columns of type {self._columns[name].type} cannot be filled ({name!r})",
                        where=where,
                        hint="use a text, a number, a boolean, a time or JSON",
                    )

    def definition(self, dialect: Dialect) -> str:
        """A digest of the table and its mapping: another one builds the table again."""
        parts = [str(self.version), str(CreateTable(self.table).compile(dialect=dialect))]
        for entity_class, sources in sorted(self.classes.items()):
            parts.append(entity_class)
            if entity_class in self._rows_sources:
                parts.append(_described(self._rows_sources[entity_class]))
            parts += [f"{name}={_described(source)}" for name, source in sorted(sources.items())]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    @property
    def has_many_rows(self) -> bool:
        """Whether an entity may have any number of rows."""
        return bool(self._rows_sources)

    def has_rows_source(self, entity_class: str) -> bool:
        """Whether a function returns the rows of the entities of this class."""
        return entity_class in self._rows_sources

    def rows(self, entity: ProjectedEntity) -> list[dict[str, Any]]:
        """The columns of each row of an entity. Raises `ValueRefusedError`, which names the column
        where it is about one.
        """
        source = self._rows_sources.get(entity.entity_class)
        if source is None:
            return [self.row(entity)]
        try:
            return [self._converted(row) for row in source(entity)]
        except ValueRefusedError:
            raise
        except Exception as error:
            raise ValueRefusedError(repr(error)) from error

    def _converted(self, row: Mapping[str, Any]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name, value in row.items():
            column = self._columns.get(name)
            if column is None or name == ENTITY_ID or python_type(column) not in _TYPES:
                raise ValueRefusedError(f"the table has no column {name!r} to fill")
            try:
                values[name] = None if value is None else converter(column)(value)
            except ValueRefusedError as refused:
                raise ValueRefusedError(f"column {name!r}: {refused}") from None
        return values

    def row(self, entity: ProjectedEntity) -> dict[str, Any]:
        """The columns of an entity's row. Raises `ValueRefusedError`, which names the column."""
        values: dict[str, Any] = {}
        name = ""
        try:
            for name, read, exact, convert in self._readers[entity.entity_class]:
                found = read(entity)
                if found is not None:
                    values[name] = found if type(found) is exact else convert(found)
        except Exception as error:
            reason = str(error) if isinstance(error, ValueRefusedError) else repr(error)
            raise ValueRefusedError(f"column {name!r}: {reason}") from error
        return values


def _needs_value(column: Column[Any]) -> bool:
    return not (
        column.nullable
        or column.default is not None
        or column.server_default is not None  # Identity and Computed, too
        or column is column.table.autoincrement_column
    )


def _table_of(table: FromClause | type[Any]) -> Table:
    found = getattr(table, "__table__", table)
    if not isinstance(found, Table):
        raise ConfigurationError(
            f"{table!r} is neither a table nor a class that is mapped to one",
            where="a projection",
            hint="give a sqlalchemy.Table, or a class of your declarative base",
        )
    return found


def fields_of(source: Source) -> tuple[Field, ...] | None:
    """The places in the body of which the first that has a value counts; None for a function."""
    if isinstance(source, Field):
        return (source,)
    if isinstance(source, str):
        return (Field(source),)
    return tuple(map(Field, source)) if isinstance(source, tuple) else None


def _reader(source: Source) -> Callable[[ProjectedEntity], Any]:
    if callable(source):
        return source
    readers = [_field_reader(field) for field in fields_of(source) or ()]
    if len(readers) == 1:
        return readers[0]

    def read_first(entity: ProjectedEntity) -> Any:
        for read in readers:
            value = read(entity)
            if value is not None:
                return value
        return None

    return read_first


def _field_reader(field: Field) -> Callable[[ProjectedEntity], Any]:
    tokens = tokens_of(field.pointer)
    default = field.default
    (only, *deeper) = tokens

    def read_member(entity: ProjectedEntity) -> Any:
        """Most pointers name a member of the entity itself."""
        body = entity.body
        value = body.get(only) if type(body) is dict else _at(body, tokens)
        return default if value is None else value

    def read(entity: ProjectedEntity) -> Any:
        value = _at(entity.body, tokens)
        return default if value is None else value

    return read if deeper else read_member


def tokens_of(pointer: str) -> list[str]:
    """The reference tokens of a JSON Pointer (RFC 6901 3)."""
    return [token.replace("~1", "/").replace("~0", "~") for token in pointer.split("/")[1:]]


def _at(document: Any, tokens: Sequence[str]) -> Any:
    """What stands at a JSON Pointer (RFC 6901); None where nothing or `null` does."""
    for token in tokens:
        if isinstance(document, dict):
            document = document.get(token)
        elif isinstance(document, list) and token.isdecimal() and int(token) < len(document):
            document = document[int(token)]
        else:
            return None
    return document


def python_type(column: Column[Any]) -> type | None:
    """The type of the values that the column takes; None for one that cannot be filled."""
    if isinstance(column.type, JSON):
        return dict
    try:
        return column.type.python_type
    except NotImplementedError:
        return None


def converter(column: Column[Any]) -> Callable[[Any], Any]:
    """Reads a value in the type of the column. YANG's 64-bit numbers and decimals are JSON strings
    (RFC 7951 6.1), so a number may be a text.
    """
    wanted = python_type(column)
    if wanted is dict:
        return lambda value: value
    read = _READ[wanted]

    def convert(value: Any) -> Any:
        try:
            return read(value, column)
        except (TypeError, ValueError, OverflowError, InvalidOperation):
            shown = repr(value)
            if len(shown) > _SHOWN_CHARACTERS:
                shown = f"{shown[:_SHOWN_CHARACTERS]}..."
            raise ValueRefusedError(f"{shown} is no {_TYPES[wanted]}") from None

    return convert


def _text(value: Any, _: Column[Any]) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _boolean(value: Any, _: Column[Any]) -> bool:
    if type(value) is not bool and value not in ("true", "false"):
        raise ValueError
    return value in (True, "true")


def _stated_number(value: Any) -> str | int | float | Decimal:
    if type(value) is bool or not isinstance(value, str | int | float | Decimal):
        raise TypeError
    return value


def _whole_number(value: Any, _: Column[Any]) -> int:
    number = int(_stated_number(value))
    if (isinstance(value, float) and number != value) or number.bit_length() > _INTEGER_BITS:
        raise ValueError
    return number


def _time(value: Any, column: Column[Any]) -> datetime:
    time = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    time = time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    return time if getattr(column.type, "timezone", False) else time.replace(tzinfo=None)


_READ: Final[dict[type | None, Callable[[Any, Column[Any]], Any]]] = {
    str: _text,
    bool: _boolean,
    int: _whole_number,
    float: lambda value, _: float(_stated_number(value)),
    Decimal: lambda value, _: Decimal(str(_stated_number(value))),
    datetime: _time,
}


_EXACT: Final[dict[type | None, type]] = {kind: kind for kind in (str, bool, float)}
"""Columns whose values are stored as they are where they have this very type."""


def _described(source: Source) -> str:
    if isinstance(source, str | tuple | Field | msgspec.Struct):
        return repr(source)
    return f"{getattr(source, '__module__', '')}.{getattr(source, '__qualname__', repr(source))}"
