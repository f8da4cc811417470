"""A view for each class of TAPI, with a column for each of its members: `typed_node`, `typed_link`.

The columns come from the YANG, by way of `typed_columns.json`: `docs/typed_columns.py` writes it.
They are views over `entities`: never behind it, without rows of their own to keep or to rebuild,
and with new columns at once when a newer YANG has them. A body is parsed once a row. Tables with
the same columns, for engines that do not know Spark's views, are in `tables/typed.py`.
"""

from __future__ import annotations

import re
import textwrap
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

from instep.errors import ConfigurationError
from instep_spark.lake.view_definition import ViewDefinition

__all__ = [
    "BAD_VALUES",
    "FILE",
    "TypedClass",
    "TypedColumn",
    "bad_values",
    "class_named",
    "parsed_body",
    "typed_class",
    "typed_classes",
    "typed_name",
    "typed_reference",
    "typed_values",
    "typed_view",
]

FILE: Final = Path(__file__).with_name("typed_columns.json")
_AROUND: Final = ("consumer", "stream", "id", "key", "parent_address", "appended_at", "event_at")
"""Columns of `entities` that a typed view has, too, before those of the class."""
BAD_VALUES: Final = "bad_values"
_TYPED: Final = "typed_"
_COMMENT_CHARS: Final = 255
"""Hive takes 256 for a column."""
_ARRAY: Final = re.compile(r"ARRAY<(.+)>")
_PREFIX: Final = r"""regexp_replace(body, '"[\\w.-]+:([\\w.-]+)"\\s*:', '"$1":')"""
"""SQL: the body without the modules of its member names. No text of a JSON string looks so: its
quotes are escaped, and a colon follows member names alone.
"""


class TypedColumn(msgspec.Struct, frozen=True, omit_defaults=True):
    """One column of a class."""

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

    @property
    def ddl_type(self) -> str:
        """The type of the column in a table."""
        return "STRING" if self.type == "JSON" else self.type

    @property
    def comment(self) -> str:
        """The meaning with the unit and the values, as far as a catalogue takes it."""
        parts = [self.meaning.rstrip("."), self.unit, ", ".join(self.values)]
        return textwrap.shorten("; ".join(filter(None, parts)), _COMMENT_CHARS, placeholder=" …")


class TypedClass(msgspec.Struct, frozen=True):
    """One class with its columns."""

    meaning: str
    columns: tuple[TypedColumn, ...]


class _File(msgspec.Struct):
    modules: list[str]
    classes: dict[str, TypedClass]


_decode: Final = msgspec.json.Decoder(_File).decode


@cache
def _read() -> _File:
    return _decode(FILE.read_bytes())


def typed_classes() -> dict[str, TypedClass]:
    """The classes by their names, such as NODE."""
    return _read().classes


def typed_class(name: str) -> TypedClass:
    """A class by its name. Raises `ConfigurationError` for one that the YANG does not have."""
    known = typed_classes()
    if name not in known:
        raise ConfigurationError(
            f"no columns of {name!r}: there is no such class in the YANG",
            hint=f"it has {', '.join(known)}",
        )
    return known[name]


def typed_view(entity_class: str) -> ViewDefinition:
    """The view of a class. Raises `ConfigurationError` for one that the YANG does not have."""
    return _view(entity_class, typed_class(entity_class))


def typed_name(entity_class: str) -> str:
    """The name of the view, and of the table, of a class."""
    return f"{_TYPED}{entity_class.lower()}"


def class_named(name: str) -> str:
    """The class of a typed table; empty for the name of another table."""
    return name.removeprefix(_TYPED).upper() if name.startswith(_TYPED) else ""


def parsed_body(one: TypedClass) -> str:
    """SQL: `body` as a struct of texts, which the other expressions read as `stated`."""
    return f"from_json({_PREFIX}, 'STRUCT<{_ddl(_tree(one.columns))}>')"


def typed_values(one: TypedClass) -> list[str]:
    """SQL: the columns of the class."""
    return [f"{_value(column)} AS `{column.name}`" for column in one.columns]


def bad_values(one: TypedClass) -> str:
    """SQL: the names of the columns whose value in the body is none of their type."""
    bad = ", ".join(f"CASE WHEN {_bad(column)} THEN '{column.name}' END" for column in one.columns)
    return f"array_compact(array({bad}))"


def typed_reference() -> str:
    """The typed views as a table of the reference, in Markdown."""
    rows = "\n".join(
        f"| `{typed_name(name)}` | {name} | {len(one.columns)} |"
        for name, one in typed_classes().items()
    )
    modules = ", ".join(f"`{module}`" for module in _read().modules)
    around = ", ".join(f"`{name}`" for name in _AROUND)
    return (
        "## Typed views and tables\n\nOne a class, over `entities`, with a column for each leaf, "
        "leaf-list and list that its YANG has: names of containers and member joined by `_`, "
        "lists as JSON. "
        f"Before them stand {around}; behind them `body`, and `{BAD_VALUES}`: the columns whose "
        "value in `body` is none of their type, and which are null therefore. A table also has the "
        "place of the statement, as `topology` has it. `DESCRIBE typed_node` shows each column "
        "with its type, unit, values and meaning.\n\n"
        f"Made from {modules}.\n\n"
        f"| Name | Class | Columns of the class |\n| --- | --- | --- |\n{rows}"
    )


def _view(name: str, one: TypedClass) -> ViewDefinition:
    names = ", ".join(f"`{column.name}`" for column in one.columns)
    around = ", ".join(_AROUND)
    sql = f"""
    WITH parsed AS (
        SELECT {around}, body, {parsed_body(one)} AS stated FROM entities WHERE class = '{name}'
    ), typed AS (
        SELECT {around}, {", ".join(typed_values(one))}, body, stated FROM parsed
    )
    SELECT {around}, {names}, body, {bad_values(one)} AS {BAD_VALUES} FROM typed
    """
    columns = (
        *((column, "as in `entities`") for column in _AROUND),
        *((column.name, column.comment) for column in one.columns),
        ("body", "the entity as JSON, as the provider stated it"),
        (BAD_VALUES, "columns whose value in `body` is none of their type, so they are null"),
    )
    return ViewDefinition(
        typed_name(name), f"Each {name} with its members. {one.meaning}".strip(), sql, columns
    )


_Tree = dict[str, Any]
"""Members by name, each with those below it."""


def _tree(columns: tuple[TypedColumn, ...]) -> _Tree:
    tree: _Tree = {}
    for column in columns:
        below = tree
        for member in column.path:
            below = below.setdefault(member, {})
    return tree


def _ddl(tree: _Tree) -> str:
    """The type of the members. Leaves are texts first: what is bad can be told from what is not
    there.
    """
    fields = (
        f"`{name}`: {f'STRUCT<{_ddl(below)}>' if below else 'STRING'}"
        for name, below in tree.items()
    )
    return ", ".join(fields)


def _stated(column: TypedColumn) -> str:
    return ".".join(("stated", *(f"`{member}`" for member in column.path)))


def _value(column: TypedColumn) -> str:
    stated = _stated(column)
    if many := _ARRAY.fullmatch(column.type):
        one = _cast("one", column, many[1])
        return f"transform(from_json({stated}, 'ARRAY<STRING>'), one -> {one})"
    return _cast(stated, column, column.type)


def _cast(text: str, column: TypedColumn, kind: str) -> str:
    if column.values:
        name = f"substring_index(trim({text}), ':', -1)"
        known = ", ".join(f"'{value}'" for value in column.values)
        return name if column.open else f"CASE WHEN {name} IN ({known}) THEN {name} END"
    if kind == "BOOLEAN":
        return f"CASE {text} WHEN 'true' THEN true WHEN 'false' THEN false END"
    if kind in {"STRING", "JSON"}:
        return text
    exact = f"try_cast({text} AS DECIMAL(38,18))"
    return f"CASE WHEN {exact} = try_cast({text} AS {kind}) THEN try_cast({text} AS {kind}) END"


def _bad(column: TypedColumn) -> str:
    value = f"`{column.name}`"
    bad = f"{_stated(column)} IS NOT NULL AND {value} IS NULL"
    if _ARRAY.fullmatch(column.type):
        return f"{bad} OR exists({value}, one -> one IS NULL)"
    return bad
