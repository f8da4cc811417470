"""The user's own tables hold what the store holds, in the transaction of each commit."""

from __future__ import annotations

import random
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Connection,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    select,
    text,
    update,
)

from instep.config.derivations import ready_tables
from instep.errors import ConfigurationError, FencedError
from instep.model.batches import Batch
from instep.model.position import Position
from instep.model.records import Record
from instep_sql import Projection, SqlStore
from instep_sql.projections.ready import ready_projection
from tests.instep_sql.references.references_kit import Network, end, network, statement

pytestmark = pytest.mark.asyncio


def nodes(name: str = "my_node", *more: Any, **given: Any) -> Projection:
    table = Table(
        name,
        MetaData(),
        Column("entity_id", BigInteger, primary_key=True),
        Column("uuid", Text, nullable=False),
        Column("ports", Integer, CheckConstraint("ports >= 0")),
        Column("label", String(8)),
        *more,
    )
    return Projection(
        table,
        {
            "NODE": {"uuid": "/uuid", "ports": "/ports", "label": "/label"},
            "SWITCH": {"uuid": "/id", "label": lambda entity: entity.key},
        },
        **given,
    )


def node(key: str, at: int = 1, ports: Any = 1, **body: Any) -> Record:
    return statement("nodes", key, "NODE", {"uuid": key, "ports": ports, **body}, at=at)


def switch(uuid: str, at: int = 1) -> Record:
    return statement("nodes", uuid, "SWITCH", {"id": uuid}, at=at)


async def rows(at: Network, projection: Projection, *names: str) -> list[tuple[Any, ...]]:
    columns = [projection.table.c[name] for name in names or ("uuid", "ports", "label")]
    query = select(*columns)
    found = await at.store.reader.database.run(lambda connection: connection.execute(query).all())
    return sorted(map(tuple, found), key=str)


async def errors(at: Network) -> list[tuple[str, str]]:
    return sorted((one.key, one.reason) for one in await at.store.reader.projection_errors())


async def test_rows_come_change_and_go_with_their_entities(database: str) -> None:
    mine = nodes()
    async with network(database, projections=[mine]) as at:
        await at.commit(node("a"), node("b", ports="2", label="x"), switch("c"))
        assert await rows(at, mine) == [("a", 1, None), ("b", 2, "x"), ("c", None, "c")]
        await at.commit(node("a", 2, ports=5), end("nodes", "b", 2))
        assert await rows(at, mine) == [("a", 5, None), ("c", None, "c")]
        # Another class under the same key is another entity (A13): what the class maps, or no row.
        await at.commit(switch("a", 3), statement("nodes", "c", "LINK", {"uuid": "c"}, at=3))
        both = [("a", 5, None), ("a", None, "a#SWITCH")]
        assert await rows(at, mine) == [*both, ("c", None, "c")]
        at.attempt = 2
        await at.commit(node("d", 4), sweep=2)
        assert await rows(at, mine) == [("d", 1, None)]


async def test_a_commit_that_is_refused_changes_no_row(database: str) -> None:
    mine = nodes()
    async with network(database, projections=[mine]) as at:
        await at.commit(node("a"))
        late = Batch(
            stream="nodes",
            records=[node("a", 2, ports=2)],
            position=Position(token="t2", ordinal=1, attempt=1, lineage=1),
            expects_ordinal=0,
        )
        with pytest.raises(FencedError):
            await at.store.commit(late)
        assert await rows(at, mine) == [("a", 1, None)]


async def test_a_bad_value_costs_one_row_and_says_why(database: str) -> None:
    mine = nodes()
    async with network(database, projections=[mine]) as at:
        await at.commit(node("a", ports="many"), node("b"), node("c", uuid=None))
        assert [uuid for uuid, *_ in await rows(at, mine)] == ["b"]
        (many, nothing) = await errors(at)
        assert many == ("a", "column 'ports': 'many' is no whole number of 64 bits")
        assert nothing[0] == "c"
        assert "null" in nothing[1].lower()
        await at.commit(node("a", 2), end("nodes", "c", 2))
        assert [uuid for uuid, *_ in await rows(at, mine)] == ["a", "b"]
        assert await errors(at) == []


async def test_what_the_database_refuses_is_left_out_alone(
    database: str, caplog: pytest.LogCaptureFixture
) -> None:
    mine = nodes()
    async with network(database, projections=[mine]) as at:
        await at.commit(*(node(f"n{n:02}", ports=-1 if n % 7 == 3 else n) for n in range(40)))
        bad = [f"n{n:02}" for n in range(40) if n % 7 == 3]
        assert [uuid for uuid, *_ in await rows(at, mine)] == sorted(
            {f"n{n:02}" for n in range(40)} - {*bad}
        )
        assert [key for key, _ in await errors(at)] == bad
    assert "error ignored" not in caplog.text


async def test_whether_an_entity_has_a_row_does_not_depend_on_those_beside_it(
    database: str,
) -> None:
    mine = nodes()
    # No column names the member, whose number no float holds.
    odd = b'{"uuid":"a","ports":1,"odd":1e999}'
    async with network(database, projections=[mine]) as at:
        await at.commit(replace(node("a"), body=odd))
        assert await rows(at, mine) == [("a", 1, None)]
        await at.commit(replace(node("a", 2), body=odd), node("b", 2, ports="many"))
        assert await rows(at, mine) == [("a", 1, None)]
        assert [key for key, _ in await errors(at)] == ["b"]


async def test_another_definition_builds_the_table_again(database: str) -> None:
    async with network(database, projections=[nodes()]) as at:
        await at.commit(node("a", label="x"), node("b"))
    wider = nodes("my_node", Column("level", Integer, server_default="3"))
    async with network(database, projections=[wider]) as at:
        assert await rows(at, wider, "uuid", "level") == [("a", 3), ("b", 3)]
        await at.commit(node("c", 2))
        assert await rows(at, wider, "uuid", "level") == [("a", 3), ("b", 3), ("c", 3)]
        await tampered(at.store, update(wider.table).values(level=4))
    # The same definition: nothing is built, what someone else has written stays.
    same = nodes("my_node", Column("level", Integer, server_default="3"))
    async with network(database, projections=[same]) as at:
        assert await rows(at, same, "uuid", "level") == [("a", 4), ("b", 4), ("c", 4)]
        await at.store.rebuild_projections()
        assert await rows(at, same, "uuid", "level") == [("a", 3), ("b", 3), ("c", 3)]


async def tampered(store: SqlStore, statement: Any) -> None:
    """Write into the database as someone else does."""

    def work(connection: Connection) -> None:
        connection.execute(statement)

    await store._database.run(work)


async def test_a_table_of_someone_else_is_never_replaced(database: str) -> None:
    mine = nodes()
    async with network(database) as at:
        await tampered(at.store, text("CREATE TABLE my_node (precious integer)"))
        await tampered(at.store, text("INSERT INTO my_node VALUES (1)"))
    with pytest.raises(ConfigurationError, match="exists and does not fit"):
        async with network(database, projections=[mine]):
            pass
    async with network(database) as at:
        count = text("SELECT precious FROM my_node")
        read = await at.store.reader.database.run(
            lambda connection: connection.execute(count).scalars().all()
        )
        assert read == [1]


async def test_a_table_with_rows_of_someone_else_is_never_filled(database: str) -> None:
    mine = nodes()
    async with network(database) as at:
        made = "CREATE TABLE my_node (entity_id BIGINT PRIMARY KEY, uuid TEXT, ports INTEGER,"
        await tampered(at.store, text(f"{made} label VARCHAR(8))"))
        await tampered(at.store, text("INSERT INTO my_node VALUES (1, 'mine', 1, NULL)"))
    with pytest.raises(ConfigurationError, match="rows that no projection has written"):
        async with network(database, projections=[mine]):
            pass
    async with network(database) as at:
        assert await rows(at, mine) == [("mine", 1, None)]


async def test_what_a_process_without_the_projection_has_written_is_projected_later(
    database: str,
) -> None:
    mine, other = nodes(), nodes("other_node")
    async with network(database, projections=[mine, other]) as at:
        await at.commit(node("a"), node("b"))
    async with network(database, projections=[other]) as at:
        await at.commit(node("a", 2, ports=9), end("nodes", "b", 2), node("c", 2))
        assert await rows(at, other) == [("a", 9, None), ("c", 1, None)]
        # The end is seen by all.
        assert await rows(at, mine) == [("a", 1, None)]
    async with network(database, projections=[mine]) as at:
        assert await rows(at, mine) == [("a", 9, None), ("c", 1, None)]


async def test_a_store_with_triggers_of_before_is_given_those_of_now(database: str) -> None:
    mine = nodes()
    async with network(database, projections=[mine]) as at:
        await at.commit(node("a"))
        drop = (
            [f"DROP TRIGGER instep_followed_{event}" for event in ("inserted", "updated")]
            if database.startswith("sqlite")
            else ["DROP FUNCTION instep_followed_inserted() CASCADE"]
        )
        for statement_of_before in (
            *drop,
            "UPDATE instep_projection SET definition = '1' WHERE name = 'triggers of followers'",
        ):
            await tampered(at.store, text(statement_of_before))
    async with network(database, projections=[mine]) as at:
        await at.commit(node("b"))
        assert await rows(at, mine) == [("a", 1, None), ("b", 1, None)]


@pytest.mark.parametrize("seed", range(8))
async def test_the_table_is_the_store_whatever_comes(database: str, seed: int) -> None:
    source = random.Random(seed)
    mine = nodes()
    async with network(database, projections=[mine]) as at:
        for moment in range(1, 12):
            made = [
                source.choice(
                    [
                        node(key, moment, ports=source.choice([1, 2, -1, "x"])),
                        switch(key, moment),
                        end("nodes", key, moment),
                        statement("nodes", key, "LINK", {}, at=moment),
                    ]
                )
                for key in source.sample("abcdefgh", source.randint(1, 6))
            ]
            at.attempt += source.random() < 0.3
            await at.commit(*made, sweep=at.attempt if source.random() < 0.2 else None)
            expected: list[tuple[Any, ...]] = []
            refused = []
            for entity in await at.entities():
                if entity.entity_class == "SWITCH":
                    expected.append((entity.body["id"], None, entity.key))
                elif entity.entity_class == "NODE":
                    if entity.body["ports"] in (1, 2):
                        expected.append((entity.body["uuid"], entity.body["ports"], None))
                    else:
                        refused.append(entity.key)
            assert await rows(at, mine) == sorted(expected, key=str), f"seed {seed}"
            assert [key for key, _ in await errors(at)] == sorted(refused), f"seed {seed}"


async def test_the_ready_tables_of_tapi(database: str) -> None:
    async with network(database, projections=sorted(ready_tables())) as at:
        body: dict[str, Any] = {
            "uuid": "P",
            "name": [{"value-name": "PORT", "value": "1/2"}],
            "layer-protocol-name": "PHOTONIC_MEDIA",
        }
        address = "topology-uuid:T", "node-uuid:N"
        await at.commit(
            statement("all", "k-N", "NODE", {"uuid": "N", "operational-state": "ENABLED"}),
            statement("all", "k-P", "NODE_EDGE_POINT", body, *address),
        )
        node_rows = await rows(at, ready_projection("node"), "uuid", "name", "operational_state")
        assert node_rows == [("N", None, "ENABLED")]
        ports = await rows(
            at, ready_projection("node_edge_point"), "uuid", "name", "node_uuid", "layer"
        )
        assert ports == [("P", "1/2", "N", "PHOTONIC_MEDIA")]
        assert await errors(at) == []


async def test_a_ready_table_that_does_not_exist_is_named(database: str) -> None:
    with pytest.raises(ConfigurationError, match=r"'projections\[0\]'.*'nodes'") as caught:
        SqlStore(database, projections=["nodes"])
    assert '"node", "node_edge_point"' in caught.value.hint
