"""Foreign keys to the tables of projections: to the row of the same entity, and no others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Integer,
    MetaData,
    Table,
    Text,
)

from instep.errors import ConfigurationError
from instep_sql import ProjectedEntity, Projection, SqlStore
from tests.instep_sql.projections.test_own_tables import on, port, run
from tests.instep_sql.references.references_kit import end, network

pytestmark = pytest.mark.asyncio


def names_of(entity: ProjectedEntity) -> Iterator[dict[str, Any]]:
    for one in entity.body["name"]:
        yield {"kind": one["value-name"], "value": one["value"]}


def tables(**of_key: Any) -> tuple[Table, Table, Table]:
    """A table, its child with several rows, and a child of that, with one row."""
    of_key = {"ondelete": "CASCADE"} | of_key
    metadata = MetaData()
    parent = Table(
        "zone",
        metadata,
        Column("entity_id", BigInteger, primary_key=True, autoincrement=False),
        Column("state", Text, CheckConstraint("state <> 'BAD'")),
    )
    child = Table(
        "label",
        metadata,
        Column("entity_id", ForeignKey("zone.entity_id", **of_key), primary_key=True),
        Column("kind", Text, primary_key=True),
        Column("value", Text),
    )
    other = Table(
        "area",
        metadata,
        Column("entity_id", ForeignKey("zone.entity_id", **of_key), primary_key=True),
        Column("uuid", Text),
    )
    return parent, child, other


def projections_of(parent: Table, child: Table, other: Table, version: int = 1) -> list[Projection]:
    return [
        Projection(child, {"PORT": names_of}),
        Projection(parent, {"PORT": {"state": "/state"}}, version=version),
        Projection(other, {"PORT": {"uuid": "/uuid"}}),
    ]


COUNTS = "SELECT (SELECT count(*) FROM zone), (SELECT count(*) FROM label), count(*) FROM area"


@pytest.mark.parametrize(("migrated", "order"), [(False, (0, 1, 2)), (True, (2, 1, 0))])
async def test_the_rows_of_an_entity_come_change_and_go_in_any_order_of_the_projections(
    database: str, migrated: bool, order: tuple[int, ...]
) -> None:
    declared = tables()
    if migrated:
        engine = on(database)
        declared[0].metadata.create_all(engine)
        engine.dispose()
    given = projections_of(*declared)
    async with network(database, projections=[given[n] for n in order]) as at:
        await at.commit(port("a", 1, "x", "y"), port("b", 1, "z"))
        assert run(database, COUNTS) == [(2, 3, 2)]
        await at.commit(port("a", 2, "w", state="DOWN"))
        assert run(database, COUNTS) == [(2, 2, 2)]
        assert await at.store.rebuild_projections() == {"zone": 2, "label": 2, "area": 2}
        await at.commit(port("b", 3, "z", state="BAD"))
        reasons = {one.table: one.reason for one in await at.store.reader.projection_errors()}
        assert "constraint" in reasons["zone"].lower()
        if not database.startswith("sqlite"):  # which enforces no foreign key
            assert run(database, COUNTS) == [(1, 1, 1)]
            assert "foreign key constraint" in reasons["label"]
        await at.commit(port("b", 4, "z"))
        assert run(database, COUNTS) == [(2, 2, 2)]
        assert await at.store.reader.projection_errors() == []
        # Another mapping of the table that the others refer to.
        again = SqlStore(database, projections=projections_of(*declared, version=2))
        await again.open("east")
        await again.close()
        assert run(database, COUNTS) == [(2, 2, 2)]
        await at.commit(end("s", "b", 5), end("s", "a", 5))
        assert run(database, COUNTS) == [(0, 0, 0)]


@pytest.mark.parametrize(
    ("of_key", "problem"),
    [
        ({"ondelete": None}, 'write ForeignKey("zone.entity_id", ondelete="CASCADE")'),
        ({"ondelete": "SET NULL"}, 'write ForeignKey("zone.entity_id", ondelete="CASCADE")'),
    ],
)
async def test_a_key_that_would_refuse_a_commit_is_refused_at_the_start(
    database: str, of_key: dict[str, Any], problem: str
) -> None:
    store = SqlStore(database, projections=projections_of(*tables(**of_key)))
    with pytest.raises(ConfigurationError, match="keep the store from replacing a row") as caught:
        await store.open("c")
    await store.close()
    assert problem in caught.value.hint
    assert "the projection 'zone'" in caught.value.where


async def test_a_key_of_a_table_that_no_projection_fills_is_refused(database: str) -> None:
    parent, child, other = tables()
    engine = on(database)
    parent.metadata.create_all(engine)
    Table(
        "note",
        parent.metadata,
        Column("id", Integer, primary_key=True),
        Column("zone", ForeignKey("zone.entity_id", ondelete="CASCADE")),
    ).create(engine)
    engine.dispose()
    store = SqlStore(database, projections=projections_of(parent, child, other))
    with pytest.raises(ConfigurationError, match="from 'note' to 'zone'") as caught:
        await store.open("c")
    await store.close()
    assert "let 'note' keep the uuid" in caught.value.hint


async def test_a_key_to_another_entity_is_refused(database: str) -> None:
    metadata = MetaData()
    parent = Table(
        "zone",
        metadata,
        Column("entity_id", BigInteger, primary_key=True, autoincrement=False),
        Column("uuid", Text, unique=True),
    )
    child = Table(
        "label",
        metadata,
        Column("entity_id", BigInteger, primary_key=True, autoincrement=False),
        Column("zone", ForeignKey("zone.uuid", ondelete="CASCADE")),
    )
    declared = [
        Projection(child, {"PORT": {"zone": "/zone"}}),
        Projection(parent, {"ZONE": {"uuid": "/uuid"}}),
    ]
    store = SqlStore(database, projections=declared)
    with pytest.raises(ConfigurationError, match="leads to another entity"):
        await store.open("c")
    await store.close()


async def test_what_can_be_seen_without_a_database_is_refused_there() -> None:
    with pytest.raises(ConfigurationError, match="checked at the end of the commit"):
        projections_of(*tables(deferrable=True, initially="DEFERRED"))
    parent, child, other = tables()
    twin = Projection(tables()[0], {"NODE": {"state": "/state"}})
    with pytest.raises(ConfigurationError, match="two projections fill the table 'zone'"):
        SqlStore("sqlite://", projections=[*projections_of(parent, child, other), twin])
    metadata = MetaData()
    a, b = (
        Table(
            name,
            metadata,
            Column("entity_id", BigInteger, ForeignKey(f"{of}.entity_id"), primary_key=True),
        )
        for name, of in (("a", "b"), ("b", "a"))
    )
    with pytest.raises(ConfigurationError, match="refer to each other in a circle"):
        SqlStore("sqlite://", projections=[Projection(a, {"P": {}}), Projection(b, {"P": {}})])
    short = Table("s", MetaData(), Column("entity_id", Integer, primary_key=True))
    with pytest.raises(ConfigurationError, match="'entity_id' is INTEGER, not BIGINT"):
        Projection(short, {"PORT": {}})


@pytest.mark.parametrize(
    ("column", "refused"),
    [
        ({"nullable": False}, True),
        ({"nullable": False, "default": "x"}, False),
        ({"nullable": False, "server_default": "x"}, False),
        ({}, False),
    ],
)
async def test_a_column_that_nothing_fills_is_refused_where_it_needs_a_value(
    column: dict[str, Any], refused: bool
) -> None:
    key = Column("entity_id", BigInteger, primary_key=True)
    table = Table("t", MetaData(), key, Column("note", Text, **column))
    if refused:
        with pytest.raises(ConfigurationError, match="nothing fills its column 'note'"):
            Projection(table, {"PORT": {}})
        assert Projection(table, {"PORT": {"note": "/note"}}).name == "t"
    else:
        assert Projection(table, {"PORT": {}}).name == "t"
