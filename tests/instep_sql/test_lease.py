"""The lease on real databases: one process writes, whatever the others believe."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing

import psycopg
import pytest

from instep.audit import Auditable
from instep.errors import ConfigurationError, LeaseLostError, SinkError
from instep.lease import LeaseState
from instep_sql import SqlStore
from instep_sql.lease import SqlLease
from instep_sql.options import SqlOptions
from tests.instep_sql.made import Stage, info, said

pytestmark = pytest.mark.asyncio


@asynccontextmanager
async def contender(url: str, holder: str, lease_s: float = 1.0) -> AsyncIterator[SqlStore]:
    async with SqlStore(url, lease_s=lease_s, holder=holder) as store:
        await store.open("east")
        yield store


def lease(store: SqlStore) -> SqlLease:
    assert store.lease is not None
    return store.lease


async def take(store: SqlStore) -> LeaseState:
    taken = await lease(store).take(await lease(store).look())
    assert taken is not None
    return taken


async def stage(store: SqlStore) -> Stage:
    return Stage(store, await store.position(info()))


async def test_without_a_lease_nothing_is_kept(database: str) -> None:
    async with SqlStore(database) as store:
        await store.open("east")
        assert store.lease is None
        assert await store.reader.leases() == {}


async def test_a_store_in_memory_keeps_no_lease() -> None:
    with pytest.raises(ConfigurationError, match="in memory belongs to one process"):
        SqlStore("sqlite://", lease_s=10)
    SqlOptions.read({"url": "postgresql:///", "lease_s": 10}, "here")


async def test_the_holder_is_named_by_host_and_process_unless_told(database: str) -> None:
    async with SqlStore(database, lease_s=1.0) as store:
        host, _, pid = lease(store).holder.rpartition(":")
        assert host
        assert int(pid) > 0


async def test_a_lease_is_taken_from_what_was_seen_only(database: str) -> None:
    async with contender(database, "a") as a, contender(database, "b") as b:
        nobody = await lease(a).look()
        assert nobody == LeaseState()
        first = await take(a)
        assert (first.epoch, first.holder, first.lease_s) == (1, "a", 1.0)
        assert await lease(b).take(nobody) is None
        seen = await lease(b).look()
        assert seen == first
        beaten = await lease(a).beat()
        assert beaten.beat > first.beat
        assert await lease(b).take(seen) is None
        assert (await take(b)).epoch == 2


async def test_of_many_that_see_the_same_one_takes_it(database: str) -> None:
    stores = [SqlStore(database, lease_s=1.0, holder=f"h{n}") for n in range(6)]
    try:
        for store in stores:
            await store.open("east")
        taken = await asyncio.gather(*[lease(store).take(LeaseState()) for store in stores])
        assert sum(one is not None for one in taken) == 1
    finally:
        await asyncio.gather(*[store.close() for store in stores])


async def test_a_commit_is_a_beat(database: str) -> None:
    async with contender(database, "a") as a, contender(database, "b") as b:
        await take(a)
        at = await stage(a)
        seen = await lease(b).look()
        await at.commit(said("k", 1))
        assert await lease(b).take(seen) is None


async def test_who_lost_the_lease_cannot_write_one_row(database: str) -> None:
    async with contender(database, "a") as a, contender(database, "b") as b:
        await take(a)
        zombie = await stage(a)
        await zombie.commit(said("k", 1))
        async with a.audit(info()) as marks:
            await marks.mark([said("k", 2), said("missing", 1)])
            position = await marks.suspect()
            await take(b)
            for writing in (
                zombie.commit(said("k", 2)),
                zombie.commit(said("k", 2), unreadable=[]),
                a.position(info("s2")),
                marks.mark([said("other", 3)]),
                marks.suspect(),
                marks.judge(bogus=True),
                marks.repair(position),
                lease(a).beat(),
                lease(a).give_up(),
            ):
                with pytest.raises(LeaseLostError, match="another process holds the lease"):
                    await writing
            with pytest.raises(LeaseLostError):
                await a.known_streams()
            await take(a)
        await take(b)
        now = await stage(b)
        assert now.position.ordinal == 1
        assert (await now.bodies())["k"] == b'{"at":1}'
        assert len(await b.reader.streams()) == 1


async def test_who_never_held_it_writes_nothing(database: str) -> None:
    async with contender(database, "a") as a:
        assert isinstance(a, Auditable)
        with pytest.raises(LeaseLostError, match="or nobody"):
            await a.position(info())


async def test_who_gave_up_writes_nothing_more_even_while_nobody_took_it(database: str) -> None:
    async with contender(database, "a") as a:
        await take(a)
        at = await stage(a)
        await lease(a).give_up()
        assert (await lease(a).look()).holder == ""
        with pytest.raises(LeaseLostError):
            await at.commit(said("k", 1))
        assert (await take(a)).epoch == 3
        await at.commit(said("k", 1))


async def test_leases_of_several_consumers_are_their_own(database: str) -> None:
    async with contender(database, "a") as a, SqlStore(database, lease_s=2.0, holder="b") as b:
        await b.open("west")
        await take(a)
        await take(b)
        await lease(a).beat()
        told = await a.reader.leases()
        assert {name: state.holder for name, state in told.items()} == {"east": "a", "west": "b"}


async def test_the_holder_learns_at_its_beat_that_it_was_asked(database: str) -> None:
    async with contender(database, "a") as a, contender(database, "b") as b:
        with pytest.raises(SinkError, match="nobody holds a lease for the consumer 'east'"):
            await b.reader.ask_to_hand_over("east")
        await take(a)
        assert not (await lease(a).beat()).asked
        assert (await b.reader.ask_to_hand_over("east")).holder == "a"
        assert (await lease(a).beat()).asked
        await lease(a).give_up()
        taken = await take(b)
        assert not taken.asked
        assert not (await lease(b).beat()).asked


@pytest.mark.parametrize("stopped_in", ["idle", "copy"])
async def test_a_holder_that_stopped_in_its_transaction_is_ended(
    postgres_database: str, stopped_in: str
) -> None:
    """The place of a process that is stopped is taken by a connection that says no more."""
    async with contender(postgres_database, "b") as b:
        with closing(psycopg.connect(postgres_database)) as a:
            a.execute(
                "INSERT INTO instep_lease VALUES ('east', 5, 1, 'a', 1.0, 0, -1)",
            )
            a.commit()
            seen = await lease(b).look()
            a.execute("UPDATE instep_lease SET beat = beat + 1 WHERE consumer = 'east'")
            if stopped_in == "copy":
                a.pgconn.send_query(b"COPY instep_entity FROM STDIN")
            # Silent for too short a time: it may be alive.
            with pytest.raises(SinkError, match="a lock was not to be had"):
                await lease(b).take(seen)
            await asyncio.sleep(0.3)
            taken = await lease(b).take(seen)
            assert taken is not None
            assert (taken.epoch, taken.holder) == (6, "b")
            with closing(psycopg.connect(postgres_database)) as c:
                pids = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s"
                assert c.execute(pids, [a.info.backend_pid]).fetchone() == (0,)


async def test_a_server_that_works_for_the_holder_is_left_alone(postgres_database: str) -> None:
    async with contender(postgres_database, "a") as a, contender(postgres_database, "b") as b:
        await take(a)
        seen = await lease(b).look()
        slow = asyncio.create_task(
            a._database.run(lambda connection: connection.exec_driver_sql("SELECT pg_sleep(1)"))
        )
        await asyncio.sleep(0.5)
        with pytest.raises(SinkError, match="a lock was not to be had"):
            await lease(b).take(seen)
        await slow
        assert await lease(b).take(seen) is None
