"""The life of what is derived: enabled, rebuilt for another version, disabled, enabled again."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace
from sqlalchemy import Connection, text

from instep.errors import ConfigurationError, DerivationOffError
from instep.ports import Column
from instep_sql import SqlStore
from instep_sql.derived.keeper import enabled_derivations
from instep_tapi.derivations import references as derived
from instep_tapi.derivations.alarms import Alarms, alarms
from instep_tapi.derivations.references import References
from tests.instep_sql.alarms.alarms_kit import alarms_stage, episodes, statement
from tests.instep_sql.references.references_kit import network
from tests.instep_sql.references.references_kit import statement as entity

pytestmark = pytest.mark.asyncio


async def test_another_version_keeps_what_statements_have_told(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with alarms_stage(database) as at:
        await at.commit(statement(10), statement(20, "CLEAR"), statement(1_000))
        before = await episodes(at)
    monkeypatch.setattr(Alarms, "version", "99")
    (table,) = Alarms.tables
    columns = (*table.columns, Column("note", nullable=True))
    monkeypatch.setattr(Alarms, "tables", (replace(table, columns=columns),))
    async with alarms_stage(database) as at:
        assert await episodes(at) == before
        notes = await at.store.reader._fetch(
            lambda connection: connection.execute(text("SELECT note FROM instep_alarm")).all()
        )
        assert [tuple(row) for row in notes] == [(None,), (None,)]


async def test_another_version_derives_anew_from_the_entities(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with network(database) as at:
        await at.commit(entity("s", "l", "LINK", {"uuid": "L", "end": {"node-uuid": "N"}}))
        tampered = "UPDATE instep_reference SET uuid = 'forged'"

        def forge(connection: Connection) -> None:
            connection.execute(text(tampered))

        await at.store._database.run(forge)
    async with network(database) as at:
        assert [one.target async for one in derived.dangling(at.reader)] == ["forged"]
    monkeypatch.setattr(References, "version", "99")
    async with network(database) as at:
        assert [one.target async for one in derived.dangling(at.reader)] == ["N"]
        await at.commit(entity("s", "l", "LINK", {"uuid": "L", "end": {"node-uuid": "M"}}, at=1))
        assert [one.target async for one in derived.dangling(at.reader)] == ["M"]


async def test_what_is_turned_off_is_gone_and_can_be_turned_on_again(database: str) -> None:
    async with alarms_stage(database) as at:
        await at.commit(statement(10))
    async with SqlStore(database, alarms=False) as store:
        await store.open("c")
        with pytest.raises(DerivationOffError):
            [one async for one in alarms(store.reader)]
    async with SqlStore(database, alarms=True) as store:
        await store.open("c")
        (one,) = [one async for one in alarms(store.reader)]
        assert (one.state, one.reduced_fidelity) == ("ACTIVE", True)


async def test_each_consumer_keeps_its_own_options(database: str) -> None:
    def names(connection: Connection, consumer: str) -> dict[str, str]:
        ((_, options),) = enabled_derivations(connection, consumer).statements
        return dict(options.alarm_names)

    async with SqlStore(database, alarms=True, alarm_names={"LOS": "Loss"}) as store:
        await store.open("east")
        assert await store._database.run(lambda one: names(one, "east")) == {"LOS": "Loss"}
        assert await store._database.run(lambda one: names(one, "west")) == {}


async def test_a_query_that_does_not_exist_is_refused(database: str) -> None:
    async with alarms_stage(database) as at:
        for asked, found in (
            (at.store.reader.derived("alarmz"), "no derivation 'alarmz'"),
            (at.store.reader.derived("alarms", "x"), "with a query 'x'"),
            (at.store.reader.derived("alarms", colour="red"), "no filter 'colour'"),
        ):
            with pytest.raises(ConfigurationError, match=found):
                [row async for row in asked]


async def test_pages_follow_each_other(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("instep_sql.derived.reading.PAGE_RECORDS", 2)
    async with network(database) as at:
        body = {"uuid": "L", **{f"end-{n}": {"node-uuid": f"N{n}"} for n in range(7)}}
        await at.commit(entity("s", "l", "LINK", json.loads(json.dumps(body))))
        found = [one.target async for one in derived.references(at.reader, "L")]
        assert found == [f"N{n}" for n in range(7)]
