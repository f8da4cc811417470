"""What a projection reads from an entity, and what it refuses."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Float,
    LargeBinary,
    MetaData,
    Numeric,
    Table,
    Text,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.types import TypeEngine

from instep.errors import ConfigurationError
from instep_sql import Field, ProjectedEntity, Projection
from instep_sql.projections.projection import Source, ValueRefusedError

NOON_AT_PLUS_2 = datetime(2022, 11, 4, 10, tzinfo=UTC)

TEN_UTC = datetime(2022, 11, 4, 10, tzinfo=UTC)


def table_of(type_: TypeEngine[Any] | None = None, name: str = "t", **given: Any) -> Table:
    return Table(
        name,
        MetaData(),
        Column("entity_id", BigInteger, primary_key=True),
        Column("value", type_ or Text()),
        **given,
    )


def read(type_: TypeEngine[Any], source: Source, body: Any) -> Any:
    projection = Projection(table_of(type_), {"NODE": {"value": source}})
    entity = ProjectedEntity("east", "s", "k", "NODE", "u", body, {"at": 1})
    return projection.row(entity).get("value", "nothing")


@pytest.mark.parametrize(
    ("pointer", "expected"),
    [
        ("/a", "x"),
        ("/b/1/c", "y"),
        ("/b/2/c", "nothing"),
        ("/b/-/c", "nothing"),
        ("/a/b", "nothing"),
        ("/none", "nothing"),
        ("/m~1n~0o", "z"),
        ("/null", "nothing"),
    ],
)
def test_a_pointer_is_that_of_rfc_6901(pointer: str, expected: str) -> None:
    body = {"a": "x", "b": [{}, {"c": "y"}], "m/n~o": "z", "null": None}
    assert read(Text(), pointer, body) == expected


def test_a_default_stands_for_what_is_not_stated() -> None:
    assert read(Text(), Field("/a", default="d"), {}) == "d"
    assert read(Text(), Field("/a", default="d"), {"a": "x"}) == "x"


def test_a_function_is_given_the_whole_entity() -> None:
    assert read(Text(), lambda entity: f"{entity.key} {entity.envelope['at']}", {}) == "k 1"


@pytest.mark.parametrize(
    ("type_", "stated", "expected"),
    [
        (BigInteger(), 7, 7),
        (BigInteger(), "18", 18),
        (BigInteger(), 7.0, 7),
        (Float(), "1.5", 1.5),
        (Float(), 2, 2.0),
        (Numeric(), "1.10", Decimal("1.10")),
        (Boolean(), True, True),
        (Boolean(), "false", False),
        (JSON(), {"a": [1]}, {"a": [1]}),
        (DateTime(timezone=True), "2022-11-04T12:00:00+02:00", TEN_UTC),
        (DateTime(), "2022-11-04T12:00:00+02:00", TEN_UTC.replace(tzinfo=None)),
    ],
)
def test_a_value_is_read_in_the_type_of_its_column(
    type_: TypeEngine[Any], stated: Any, expected: Any
) -> None:
    value = read(type_, "/a", {"a": stated})
    assert (value, type(value)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("type_", "stated", "reason"),
    [
        (Text(), 7, "column 'value': 7 is no text"),
        (BigInteger(), "7.5", "column 'value': '7.5' is no whole number of 64 bits"),
        (BigInteger(), 7.5, "column 'value': 7.5 is no whole number of 64 bits"),
        (BigInteger(), 1 << 63, f"column 'value': {1 << 63} is no whole number of 64 bits"),
        (BigInteger(), True, "column 'value': True is no whole number of 64 bits"),
        (Float(), "much", "column 'value': 'much' is no number"),
        (Boolean(), 1, "column 'value': 1 is no boolean"),
        (DateTime(), "today", "column 'value': 'today' is no time (ISO 8601)"),
        (Text(), {}, "column 'value': {} is no text"),
        (BigInteger(), "x" * 200, f"column 'value': '{'x' * 79}... is no whole number of 64 bits"),
    ],
)
def test_a_value_of_another_type_is_refused(
    type_: TypeEngine[Any], stated: Any, reason: str
) -> None:
    with pytest.raises(ValueRefusedError) as caught:
        read(type_, "/a", {"a": stated})
    assert str(caught.value) == reason


def test_what_a_function_raises_is_the_reason() -> None:
    with pytest.raises(ValueRefusedError, match=r"column 'value': KeyError\('a'\)"):
        read(Text(), lambda entity: entity.body["a"], {})


@pytest.mark.parametrize(
    ("table", "classes", "message"),
    [
        (table_of(name="instep_x"), {"NODE": {"value": "/a"}}, "names instep_"),
        (table_of(schema="other"), {"NODE": {"value": "/a"}}, "names a schema"),
        (
            Table("t", MetaData(), Column("uuid", Text, primary_key=True)),
            {"NODE": {"uuid": "/uuid"}},
            "primary key is not the column 'entity_id'",
        ),
        (table_of(), {}, "it has no class"),
        (table_of(), {"NODE": {"other": "/a"}}, "no column 'other'"),
        (table_of(), {"NODE": {"entity_id": "/a"}}, "no column 'entity_id'"),
        (table_of(), {"NODE": {"value": "a"}}, "'a' is not a JSON Pointer"),
        (table_of(), {"NODE": {"value": Field("a.b")}}, "'a.b' is not a JSON Pointer"),
        (table_of(LargeBinary()), {"NODE": {"value": "/a"}}, "cannot be filled"),
    ],
)
def test_a_declaration_that_cannot_serve_is_refused(
    table: Table, classes: Any, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        Projection(table, classes)
    assert caught.value.hint


def test_the_definition_changes_with_what_is_written() -> None:
    def one(entity: ProjectedEntity) -> str:
        return entity.key

    def definition(table: Table, source: Source, **given: Any) -> str:
        return Projection(table, {"NODE": {"value": source}}, **given).definition(sqlite.dialect())

    same = [definition(table_of(), "/a") for _ in range(2)]
    others = [
        definition(table_of(), "/b"),
        definition(table_of(), Field("/a", default="x")),
        definition(table_of(), one),
        definition(table_of(), "/a", version=2),
        definition(table_of(BigInteger()), "/a"),
    ]
    assert len({*same, *others}) == 1 + len(others)
