"""A short cut to the rows of a projection, column by column, for mappings of JSON Pointers: of each
body only the members that its columns name are decoded, by their types. The plain twin is
`Projection.row`; tests/instep_sql/projections/test_fast_columns.py holds that both agree.

It looks at nothing that no column names. So it also takes rows whose whole JSON cannot be decoded:
with a number beyond the range of a float in another member, or with an envelope that is no JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final, NamedTuple, Self

import msgspec
from sqlalchemy import Column, TypeDecorator

from instep.ports.derivation import key_of_entity, uuid_of_entity
from instep_sql.engine.dialect import columns_of
from instep_sql.projections.projection import (
    ENTITY_ID,
    Projection,
    Source,
    ValueRefusedError,
    converter,
    fields_of,
    python_type,
    tokens_of,
)

__all__ = ["ColumnarEntities", "fast_columns"]

_OF_ENTITY: Final[Sequence[tuple[Source, str]]] = (
    (key_of_entity, "keys"),
    (uuid_of_entity, "uuids"),
)
"""The sources that are a column of the entity itself."""
_READ_AS: Final[dict[type | None, Any]] = {str: str | None, bool: bool | None}
"""What a body states in one of these types is stored as it is; all else is converted."""
_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueRefusedError)


class ColumnarEntities(NamedTuple):
    """Entities of one class, column by column."""

    ids: Sequence[int]
    keys: Sequence[str]
    uuids: Sequence[str]
    bodies: Sequence[bytes]

    @classmethod
    def of(cls, rows: Sequence[Sequence[Any]]) -> Self:
        """Of rows that begin with id, key, class, uuid and body."""
        ids, keys, _, uuids, bodies, *_ = columns_of(rows)
        return cls(ids, keys, uuids, bodies)


class _Column(NamedTuple):
    name: str
    readers: Sequence[Callable[[Any], Any]]
    """Each reads its value from a decoded body, None where there is none: the first that there is
    counts. Or the only one reads all its values from `ColumnarEntities` …"""
    of_entity: bool = False
    """… if this is set."""
    convert: Callable[[Any], Any] | None = None
    """What makes a value that is stated one of the column's type."""
    default: Any = None


class _Reader(NamedTuple):
    decode: Callable[[bytes], Any]
    columns: Sequence[_Column]


def fast_columns(
    projection: Projection, entity_class: str, stored: ColumnarEntities
) -> dict[str, Sequence[Any]] | None:
    """The columns of these rows, by name; None in them is what has no value. None: the twin has to
    read the rows, because it may give something else for one of them.
    """
    reader = _reader_of(projection, entity_class)
    if reader is None:
        return None

    def values_of(column: _Column) -> Sequence[Any]:
        if column.of_entity:
            keys_or_uuids: Sequence[str] = column.readers[0](stored)
            return keys_or_uuids
        values = list(map(column.readers[0], bodies))
        for read in column.readers[1:]:
            if None not in values:
                break
            values = [
                read(body) if value is None else value
                for value, body in zip(values, bodies, strict=True)
            ]
        if (convert := column.convert) is not None:
            values = [None if value is None else convert(value) for value in values]
        if (default := column.default) is not None:
            values = [default if value is None else value for value in values]
        return values

    try:
        if not all(map(bytes.isascii, stored.bodies)):
            for body in stored.bodies:
                body.decode()  # what is passed over is not looked at
        bodies = list(map(reader.decode, stored.bodies))
        columns = {column.name: values_of(column) for column in reader.columns}
    except _UNREADABLE:
        return None
    return {ENTITY_ID: stored.ids, **columns}


@lru_cache(maxsize=256)
def _reader_of(projection: Projection, entity_class: str) -> _Reader | None:
    """None where a source is none that can be read by its type."""
    if projection.has_rows_source(entity_class):
        return None
    members: dict[str, Any] = {}
    columns: list[_Column] = []
    for name, source in projection.classes[entity_class].items():
        column = _column(projection.table.columns[name], source, members)
        if column is None:
            return None
        columns.append(column)
    try:
        body = _struct(members)
    except ValueError:  # a name that has to be escaped in JSON
        return None
    return _Reader(msgspec.json.Decoder(body).decode, columns)


def _column(column: Column[Any], source: Source, members: dict[str, Any]) -> _Column | None:
    """Enters what the column reads into the members of the body. None: it is not read so."""
    kind = python_type(column)
    # A column that is not stated has its default, and no value is NULL to it.
    stated = column.default is None and column.server_default is None
    if not stated or kind is dict or isinstance(column.type, TypeDecorator):
        return None
    for function, of_entity in _OF_ENTITY:
        if source is function:
            read = attrgetter(of_entity)
            return _Column(column.name, [read], of_entity=True) if kind is str else None
    fields = fields_of(source)
    if fields is None:
        return None
    read_as, convert = _READ_AS.get(kind, Any), converter(column)
    paths = [_entered(members, tokens_of(field.pointer), read_as) for field in fields]
    try:
        default = None if fields[0].default is None else convert(fields[0].default)
    except ValueRefusedError:
        return None
    if not all(paths):
        return None
    readers = [attrgetter(path) for path in paths if path]
    return _Column(
        column.name,
        readers,
        convert=convert if read_as is Any else None,
        default=default,
    )


def _entered(members: dict[str, Any], tokens: Sequence[str], read_as: Any) -> str | None:
    """The path of a member, among the attributes of `_struct`, once it is entered; None where it
    may be an element of an array, or is already there as something else.
    """
    path: list[str] = []
    *containers, last = tokens
    for token in containers:
        inner = members.setdefault(token, {})
        if not isinstance(inner, dict):
            return None
        path.append(_attribute(members, token))
        members = inner
    if any(token.isdecimal() for token in tokens) or members.setdefault(last, read_as) != read_as:
        return None
    return ".".join([*path, _attribute(members, last)])


def _attribute(members: dict[str, Any], name: str) -> str:
    return f"member_{list(members).index(name)}"


def _struct(members: dict[str, Any]) -> type[msgspec.Struct]:
    """A type that decodes these members and passes over all others."""
    fields: list[tuple[str, Any, Any]] = []
    for name, read_as in members.items():
        attribute = _attribute(members, name)
        if isinstance(read_as, dict):
            inner = _struct(read_as)
            fields.append((attribute, inner, inner()))
        else:
            fields.append((attribute, read_as, None))
    names = {_attribute(members, name): name for name in members}
    return msgspec.defstruct("Members", fields, rename=names, frozen=True, gc=False)
