"""Tables of the user's own: mapped classes, migrations of theirs, several rows of an entity."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    create_engine,
    select,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from instep.errors import ConfigurationError
from instep.model.records import Record
from instep_sql import ProjectedEntity, Projection
from tests.instep_sql.references.references_kit import end, network, statement

pytestmark = pytest.mark.asyncio


class Base(DeclarativeBase):
    pass


class Port(Base):
    __tablename__ = "port"
    entity_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    uuid: Mapped[str] = mapped_column(Text, index=True)
    state: Mapped[str | None] = mapped_column(String(20))


class Name(Base):
    """Any number of rows of an entity, with a key of its own."""

    __tablename__ = "port_name"
    id: Mapped[int] = mapped_column(BigInteger().with_variant(Integer, "sqlite"), primary_key=True)
    entity_id: Mapped[int] = mapped_column(BigInteger, index=True)
    kind: Mapped[str]
    value: Mapped[str] = mapped_column(String(10))


def names_of(entity: ProjectedEntity) -> Iterator[dict[str, Any]]:
    for one in entity.body["name"]:
        yield {"kind": one["value-name"], "value": one["value"]}


PORTS = Projection(Port, {"PORT": {"uuid": "/uuid", "state": "/state"}})
NAMES = Projection(Name, {"PORT": names_of})


def port(key: str, at: int = 1, *names: str, state: str = "UP") -> Record:
    named = [{"value-name": f"n{n}", "value": name} for n, name in enumerate(names)]
    return statement("s", key, "PORT", {"uuid": key, "state": state, "name": named}, at=at)


def on(database: str) -> Any:
    return create_engine(database.replace("postgresql://", "postgresql+psycopg://"))


def run(database: str, *statements: Any) -> list[Any]:
    engine = on(database)
    found: list[Any] = []
    with engine.begin() as connection:
        for one in statements:
            result = connection.execute(text(one) if isinstance(one, str) else one)
            found = sorted(map(tuple, result)) if result.returns_rows else []
    engine.dispose()
    return found


async def test_mapped_classes_of_tables_that_the_user_has_made(database: str) -> None:
    engine = on(database)
    Base.metadata.create_all(engine)
    async with network(database, projections=[PORTS, NAMES]) as at:
        await at.commit(port("a", 1, "x", "y"), port("b", 1))
        with Session(engine) as session:
            assert sorted(session.scalars(select(Port.uuid))) == ["a", "b"]
            assert sorted(map(tuple, session.execute(select(Name.kind, Name.value)))) == [
                ("n0", "x"),
                ("n1", "y"),
            ]
        await at.commit(port("a", 2, "z"), port("b", 2, "v", "w"))
        assert run(database, select(Name.value)) == [("v",), ("w",), ("z",)]
        await at.commit(end("s", "b", 3))
        assert run(database, select(Name.value)) == [("z",)]
        assert run(database, select(Port.uuid)) == [("a",)]
    engine.dispose()


@pytest.mark.parametrize("own", [True, False])
async def test_a_store_beside_tables_of_others_tells_of_them_unless_it_fills_some(
    own: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    database = f"sqlite:///{tmp_path}/s.db"
    engine = on(database)
    Base.metadata.create_all(engine)
    engine.dispose()
    async with network(database, projections=[PORTS] if own else []):
        pass
    assert ("has tables of another program (port, port_name)" in caplog.text) is not own


async def test_an_entity_has_all_its_rows_or_none(database: str) -> None:
    async with network(database, projections=[NAMES]) as at:
        await at.commit(port("a", 1, "x", "much too long"), port("b", 1, "y", "z"))
        # SQLite keeps no length.
        kept = [("much too long",), ("x",)] if database.startswith("sqlite") else []
        assert run(database, select(Name.value)) == sorted([*kept, ("y",), ("z",)])
        await at.commit(
            statement("s", "b", "PORT", {"name": [{"value-name": "n", "value": 5}]}, at=2)
        )
        assert ("y",) not in run(database, select(Name.value))
        reasons = {one.key: one.reason for one in await at.store.reader.projection_errors()}
        assert reasons["b"] == "column 'value': 5 is no text"
        await at.commit(port("a", 3, "w"), port("b", 3, "v"))
        assert run(database, select(Name.value)) == [("v",), ("w",)]
        assert await at.store.reader.projection_errors() == []


async def test_another_mapping_fills_a_migrated_table_again_and_alters_nothing(
    database: str,
) -> None:
    # A column, an index and a table that refers to it: none of them is declared.
    run(
        database,
        "CREATE TABLE port (entity_id BIGINT PRIMARY KEY, uuid TEXT NOT NULL, state VARCHAR(20),"
        " note TEXT DEFAULT 'of mine')",
        "CREATE INDEX my_index ON port (note)",
    )
    async with network(database, projections=[PORTS]) as at:
        await at.commit(port("a"))
        assert run(database, "SELECT uuid, state, note FROM port") == [("a", "UP", "of mine")]
    other = Projection(Port, {"PORT": {"uuid": "/state", "state": "/uuid"}})
    async with network(database, projections=[other]):
        assert run(database, "SELECT uuid, state, note FROM port") == [("UP", "a", "of mine")]
    # A downgrade and an upgrade of the migrations.
    run(database, "DROP TABLE port")
    run(database, "CREATE TABLE port (entity_id BIGINT PRIMARY KEY, uuid TEXT, state VARCHAR(20))")
    async with network(database, projections=[other]):
        assert run(database, "SELECT uuid, state FROM port") == [("UP", "a")]


BAD = {
    "CREATE TABLE port (entity_id BIGINT PRIMARY KEY, uuid TEXT)": "no column 'state'",
    "CREATE TABLE port (entity_id BIGINT PRIMARY KEY, uuid INTEGER, state TEXT)": (
        "'uuid' is INTEGER, not TEXT"
    ),
    "CREATE TABLE port (entity_id BIGINT, uuid TEXT, state TEXT)": "primary key is not 'entity_id'",
    "CREATE TABLE port (entity_id BIGINT PRIMARY KEY, uuid TEXT, state TEXT,"
    " owner TEXT NOT NULL)": "nothing fills its column 'owner'",
}


@pytest.mark.parametrize("table", BAD)
async def test_a_table_that_does_not_fit_is_told_and_not_touched(database: str, table: str) -> None:
    run(database, table)
    with pytest.raises(ConfigurationError, match=BAD[table]) as caught:
        async with network(database, projections=[PORTS]):
            pass
    assert "migration" in caught.value.hint
    assert run(database, "SELECT * FROM port") == []


async def test_ids_of_32_bits_are_refused(postgres_store: str) -> None:
    run(postgres_store, "CREATE TABLE port (entity_id INTEGER PRIMARY KEY, uuid TEXT, state TEXT)")
    with pytest.raises(ConfigurationError, match="not BIGINT"):
        async with network(postgres_store, projections=[PORTS]):
            pass


async def test_migrations_of_alembic_beside_a_store(database: str) -> None:
    engine = on(database)
    Base.metadata.create_all(engine)
    async with network(database, projections=[PORTS]) as at:
        await at.commit(port("a"))
    with engine.begin() as connection:
        operations = Operations(MigrationContext.configure(connection))
        operations.add_column("port", Column("level", Integer, server_default="3"))
    async with network(database, projections=[PORTS]) as at:
        await at.commit(port("b"))
        assert run(database, "SELECT uuid, level FROM port") == [("a", 3), ("b", 3)]
    engine.dispose()


async def test_several_rows_need_an_index() -> None:
    def table(*more: Any) -> Table:
        return Table(
            "t",
            MetaData(),
            Column("id", Integer, primary_key=True),
            Column("entity_id", BigInteger),
            *more,
        )

    Projection(table(Index("i", "entity_id")), {"PORT": names_of})
    with pytest.raises(ConfigurationError, match="begins with the column 'entity_id'"):
        Projection(table(), {"PORT": names_of})
    with pytest.raises(ConfigurationError, match="is neither a table nor a class"):
        Projection(dict, {"PORT": names_of})


async def test_a_child_table_refers_to_the_table_of_its_entity(database: str) -> None:
    metadata = MetaData()
    parent = Table("p", metadata, Column("entity_id", BigInteger, primary_key=True))
    child = Table(
        "c",
        metadata,
        Column("entity_id", ForeignKey("p.entity_id", ondelete="CASCADE"), primary_key=True),
        Column("number", Integer, primary_key=True),
        Column("value", Text),
    )

    def rows(entity: ProjectedEntity) -> Iterator[dict[str, Any]]:
        for number, one in enumerate(entity.body["name"]):
            yield {"number": number, "value": one["value"]}

    projections = [Projection(parent, {"PORT": {}}), Projection(child, {"PORT": rows})]
    async with network(database, projections=projections) as at:
        await at.commit(port("a", 1, "x", "y"))
        await at.commit(port("a", 2, "z"))
        assert run(database, "SELECT number, value FROM c") == [(0, "z")]
        await at.commit(end("s", "a", 3))
        assert run(database, "SELECT * FROM c") == []
