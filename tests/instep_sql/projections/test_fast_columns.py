"""Rows of the short cut are those that `Projection.row` gives, or there are none."""

from __future__ import annotations

import json
import random
from typing import Any, Final

import pytest
from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Float,
    MetaData,
    Table,
    Text,
    TypeDecorator,
)

from instep_sql import Field, ProjectedEntity, Projection
from instep_sql.projections.fast_columns import ColumnarEntities, fast_columns
from instep_sql.projections.projection import ENTITY_ID, Source, ValueRefusedError
from instep_sql.projections.ready import ready_projection

_TYPES: Final[dict[str, Any]] = {
    "a": Text(),
    "b": Boolean(),
    "c": BigInteger(),
    "d": Float(),
    "e": DateTime(),
    "f": Text(),
    "g": Text(),
    "h": Boolean(),
    "i": Text(),
}
_SOURCES: Final[dict[str, Source]] = {
    "a": "/name",
    "b": "/flags/open",
    "c": "/flags/deep/count",
    "d": Field("/share", default="0.5"),
    "e": "/at",
    "f": Field("/flags/deep/m~1n~0o", default="none"),
    "g": "/name",
    "h": Field("/none", default="true"),
    "i": ("/absent", "/flags/other", "/name"),
}


def projection(
    sources: dict[str, Source] = _SOURCES, types: dict[str, Any] = _TYPES, **given: Any
) -> Projection:
    columns = [Column(name, types[name], **given) for name in sources]
    table = Table("t", MetaData(), Column(ENTITY_ID, BigInteger, primary_key=True), *columns)
    return Projection(table, {"NODE": sources})


def row_by_row(
    mapping: Projection, stored: ColumnarEntities, of: str
) -> list[dict[str, Any]] | None:
    """The rows as the mapping gives them, one by one; None if one of them is refused."""
    found: list[dict[str, Any]] = []
    for id, key, uuid, body in zip(*stored, strict=True):
        try:
            entity = ProjectedEntity("east", "s", key, of, uuid, json.loads(body), None)
            found.append({ENTITY_ID: id, **mapping.row(entity)})
        except (ValueError, ValueRefusedError):
            return None
    return found


def by_types(mapping: Projection, stored: ColumnarEntities, of: str) -> list[dict[str, Any]] | None:
    columns = fast_columns(mapping, of, stored)
    if columns is None:
        return None
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def stored_bodies(*bodies: bytes) -> ColumnarEntities:
    numbers = range(len(bodies))
    keys, uuids = [f"k{n}" for n in numbers], [f"u{n}" for n in numbers]
    return ColumnarEntities([10 + n for n in numbers], keys, uuids, bodies)


_USUAL: Final[dict[str, list[Any]]] = {
    "name": ["x", "\u00e4\u20ac", 'a"\\b\n', "", None],
    "open": [True, False, None],
    "count": [1, "18", 7.0, None],
    "m/n~o": ["z", None],
    "share": [1.5, 2, "2.5", None],
    "at": ["2022-11-04T12:00:00+02:00", None],
}
_UNUSUAL: Final[dict[str, list[Any]]] = {
    **{name: [*values, 7, [1], {"a": 1}, "true"] for name, values in _USUAL.items()}
}


def body(source: random.Random, values: dict[str, list[Any]], *, odd: bool) -> bytes:
    def members(*names: str) -> dict[str, Any]:
        return {name: source.choice(values[name]) for name in names if source.random() < 0.8}

    deep: Any = members("count", "m/n~o")
    flags: Any = {**members("open"), "deep": deep, "more": [{"deep": None}, 1.5]}
    if odd:
        flags["deep"] = source.choice([deep, deep, None, [deep], "x"])
        flags = source.choice([flags, flags, None, [flags], 1])
    whole: Any = {**members("name", "share", "at"), "flags": flags, "x": ["\u00fc", {"name": 1}]}
    if odd and source.random() < 0.1:
        whole = source.choice([None, [whole], "text"])
    return json.dumps(whole, ensure_ascii=source.random() < 0.5).encode()


@pytest.mark.parametrize("seed", range(40))
def test_usual_rows_are_read_by_types_and_alike(seed: int) -> None:
    source, mapping = random.Random(seed), projection()
    stored = stored_bodies(*(body(source, _USUAL, odd=False) for _ in range(20)))
    expected = row_by_row(mapping, stored, "NODE")
    assert expected is not None
    assert by_types(mapping, stored, "NODE") == expected


@pytest.mark.parametrize("seed", range(200))
def test_unusual_rows_are_read_alike_or_not_at_all(seed: int) -> None:
    source, mapping = random.Random(seed), projection()
    stored = stored_bodies(*(body(source, _UNUSUAL, odd=True) for _ in range(2)))
    assert by_types(mapping, stored, "NODE") in (None, row_by_row(mapping, stored, "NODE"))


@pytest.mark.parametrize(
    "bad", [b"", b"{", b'{"x":"\xff"}', b'{"\xff":1}', b'{"x":"\\ud800"}', b'{"x":01}', b"{} {}"]
)
def test_what_is_no_json_is_not_read_by_types(bad: bytes) -> None:
    mapping = projection()
    assert by_types(mapping, stored_bodies(b"{}", bad), "NODE") is None
    assert by_types(mapping, stored_bodies(b"{}"), "NODE") is not None


class _Own(TypeDecorator[str]):
    impl = Text

    @property
    def python_type(self) -> type[str]:
        return str


@pytest.mark.parametrize(
    ("source", "type_", "given"),
    [
        (lambda entity: entity.key, Text(), {}),
        ("/list/0", Text(), {}),
        (Field("/a", default="many"), BigInteger(), {}),
        ("/a", JSON(), {}),
        ("/a", _Own(), {}),
        ("/a", Text(), {"server_default": "x"}),
        ("/a", Text(), {"default": "x"}),
        ('/a"b', Text(), {}),
    ],
)
def test_a_mapping_that_types_cannot_tell_is_not_read_by_them(
    source: Source, type_: Any, given: dict[str, Any]
) -> None:
    mapping = projection({"value": source}, {"value": type_}, **given)
    assert by_types(mapping, stored_bodies(b"{}"), "NODE") is None


def test_a_member_that_is_a_value_and_a_container_is_not_read_by_types() -> None:
    for sources in ({"a": "/x", "f": "/x/y"}, {"f": "/x/y", "a": "/x"}, {"a": "/x", "b": "/x"}):
        assert by_types(projection(dict(sources)), stored_bodies(b"{}"), "NODE") is None


@pytest.mark.parametrize("module", ["tapi-fm:", ""])
def test_an_alarm_of_tapi_fm_has_the_columns_of_any_other(module: str) -> None:
    detected = {
        "detected-condition-native-name": "LOF",
        "detector-info": {"perceived-severity": "MAJOR", "is-acknowledge": False},
        "simple-detector": {"simple-detector-state": "ACTIVE"},
    }
    whole = {"measured-entity-uuid": "n", f"{module}detected-condition": detected}
    stored = stored_bodies(json.dumps(whole).encode())
    expected = {
        "entity_id": 10,
        "detector": "k0",
        "condition": "LOF",
        "measured_entity_uuid": "n",
        "state": "ACTIVE",
        "severity": "MAJOR",
        "is_acknowledged": False,
    }
    for read in (row_by_row, by_types):
        assert read(ready_projection("alarm"), stored, "CONDITION_DETECTOR") == [expected]


def test_an_alarm_is_read_by_types() -> None:
    detail = {
        "alarm-detector-state": "ACTIVE",
        "legacy-properties": {"perceived-severity": "MAJOR", "is-acknowledged": False},
    }
    whole = {"condition-native-name": "LOF", "alarm-condition-detector-detail": detail}
    stored = stored_bodies(json.dumps(whole).encode(), b"{}")
    expected = row_by_row(ready_projection("alarm"), stored, "CONDITION_DETECTOR")
    assert by_types(ready_projection("alarm"), stored, "CONDITION_DETECTOR") == expected
    assert expected == [
        {
            "entity_id": 10,
            "detector": "k0",
            "condition": "LOF",
            "state": "ACTIVE",
            "severity": "MAJOR",
            "is_acknowledged": False,
        },
        {"entity_id": 11, "detector": "k1"},
    ]
