"""A view for each class whose members a derivation knows, with a column for each of them:
`typed_node`, `typed_link`.

They are views over `entities`: never behind it, without rows of their own to keep or to rebuild,
and with new columns at once when a newer model has them. A body is parsed once a row. Tables with
the same columns, for engines that do not know Spark's views, are in `tables/typed.py`.
"""

from __future__ import annotations

import re
import textwrap
from functools import cache
from typing import Any, Final

from instep.errors import ConfigurationError
from instep.ports.lake import LakeView, TypedClass, TypedColumn
from instep_spark.derivations import typed_models

__all__ = [
    "BAD_VALUES",
    "bad_values",
    "class_named",
    "comment",
    "ddl_type",
    "parsed_body",
    "typed_class",
    "typed_classes",
    "typed_name",
    "typed_reference",
    "typed_values",
    "typed_view",
]

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


@cache
def typed_classes() -> dict[str, TypedClass]:
    """The classes by their names, such as NODE."""
    return {name: one for model in typed_models() for name, one in model.classes.items()}


def ddl_type(column: TypedColumn) -> str:
    """The type of the column in a table."""
    return "STRING" if column.type == "JSON" else column.type


def comment(column: TypedColumn) -> str:
    """The meaning with the unit and the values, as far as a catalogue takes it."""
    parts = [column.meaning.rstrip("."), column.unit, ", ".join(column.values)]
    return textwrap.shorten("; ".join(filter(None, parts)), _COMMENT_CHARS, placeholder=" …")


def typed_class(name: str) -> TypedClass:
    """A class by its name. Raises `ConfigurationError` for one that is not known."""
    known = typed_classes()
    if name not in known:
        raise ConfigurationError(
            f"no columns of {name!r}: no derivation knows the members of such a class",
            hint=f"they know {', '.join(known)}",
        )
    return known[name]


def typed_view(entity_class: str) -> LakeView:
    """The view of a class. Raises `ConfigurationError` for one that is not known."""
    return _view(entity_class, typed_class(entity_class))


def typed_name(entity_class: str) -> str:
    """The name of the view, and of the table, of a class."""
    return f"{_TYPED}{entity_class.lower()}"


def class_named(name: str) -> str:
    """The class of a typed table; empty for the name of another table."""
    return name.removeprefix(_TYPED).upper() if name.startswith(_TYPED) else ""


def parsed_body(one: TypedClass) -> str:
    """SQL: `body` as a struct of texts, which the other expressions read as `stated`."""
    return f"from_json({_PREFIX}, 'STRUCT<{_ddl(_tree(one))}>')"


def typed_values(one: TypedClass) -> list[str]:
    """SQL: the columns of the class."""
    return [f"{_value(column, _wholes(one))} AS `{column.name}`" for column in one.columns]


def bad_values(one: TypedClass) -> str:
    """SQL: the names of the columns whose value in the body is none of their type."""
    wholes = _wholes(one)
    bad = ", ".join(
        f"CASE WHEN {_bad(column, wholes)} THEN '{column.name}' END" for column in one.columns
    )
    return f"array_compact(array({bad}))"


def typed_reference() -> str:
    """The typed views as a table of the reference, in Markdown."""
    rows = "\n".join(
        f"| `{typed_name(name)}` | {name} | {len(one.columns)} |"
        for name, one in typed_classes().items()
    )
    modules = ", ".join(f"`{module}`" for model in typed_models() for module in model.modules)
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


def _view(name: str, one: TypedClass) -> LakeView:
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
        *((column.name, comment(column)) for column in one.columns),
        ("body", "the entity as JSON, as the provider stated it"),
        (BAD_VALUES, "columns whose value in `body` is none of their type, so they are null"),
    )
    return LakeView(
        typed_name(name), f"Each {name} with its members. {one.meaning}".strip(), sql, columns
    )


_Tree = dict[str, Any]
"""Members by name, each with those below it."""


def _wholes(one: TypedClass) -> frozenset[tuple[str, ...]]:
    """The members that are columns. One of them may contain others: where an edition of the model
    has a list, and another one a container.
    """
    return frozenset(column.path for column in one.columns)


def _parsed(path: tuple[str, ...], wholes: frozenset[tuple[str, ...]]) -> int:
    """How many steps of the path the struct of texts has."""
    return next(depth for depth in range(1, len(path) + 1) if path[:depth] in wholes)


def _tree(one: TypedClass) -> _Tree:
    tree: _Tree = {}
    wholes = _wholes(one)
    for column in one.columns:
        below = tree
        for member in column.path[: _parsed(column.path, wholes)]:
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


def _stated(column: TypedColumn, wholes: frozenset[tuple[str, ...]]) -> str:
    depth = _parsed(column.path, wholes)
    stated = ".".join(("stated", *(f"`{member}`" for member in column.path[:depth])))
    steps = "".join(f"[\\'{member}\\']" for member in column.path[depth:])
    return f"get_json_object({stated}, '${steps}')" if steps else stated


def _value(column: TypedColumn, wholes: frozenset[tuple[str, ...]]) -> str:
    stated = _stated(column, wholes)
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


def _bad(column: TypedColumn, wholes: frozenset[tuple[str, ...]]) -> str:
    value = f"`{column.name}`"
    bad = f"{_stated(column, wholes)} IS NOT NULL AND {value} IS NULL"
    if _ARRAY.fullmatch(column.type):
        return f"{bad} OR exists({value}, one -> one IS NULL)"
    return bad
