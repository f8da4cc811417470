"""The lease on real databases: one process writes, whatever the others believe."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing

import psycopg
import pytest
from sqlalchemy import text

from instep.coordination.lease import LeaseState
from instep.errors import ConfigurationError, LeaseLostError, SinkError
from instep_sql import SqlStore
from instep_sql.fencing import SqlLease
from instep_sql.options import SqlOptions
from tests.instep_sql.store_kit import Stage, create_update, stream_info

pytestmark = pytest.mark.asyncio


@asynccontextmanager
async def contender(url: str, holder: str, lease_s: float = 1.0) -> AsyncIterator[SqlStore]:
    async with SqlStore(url, lease_s=lease_s, holder=holder) as store:
        await store.open("east")
        yield store


def lease(store: SqlStore) -> SqlLease:
    assert store.lease is not None
    return store.lease


async def acquire(store: SqlStore) -> LeaseState:
    taken = await lease(store).acquire(await lease(store).read())
    assert taken is not None
    return taken


async def stage(store: SqlStore) -> Stage:
    return Stage(store, await store.position(stream_info()))


async def test_without_a_lease_nothing_is_kept(database: str) -> None:
    async with SqlStore(database) as store:
        await store.open("east")
        assert store.lease is None
        assert await store.reader.leases() == {}


async def test_a_store_in_memory_keeps_no_lease() -> None:
    with pytest.raises(ConfigurationError, match="in memory belongs to one process"):
        SqlStore("sqlite://", lease_s=10)
    SqlOptions.read({"url": "postgresql:///", "lease_s": 10}, "here")


async def test_the_holder_is_named_by_host_and_process_unless_given(database: str) -> None:
    async with SqlStore(database, lease_s=1.0) as store:
        host, _, pid = lease(store).holder.rpartition(":")
        assert host
        assert int(pid) > 0


async def test_a_lease_is_taken_from_what_was_seen_only(database: str) -> None:
    async with contender(database, "a") as a, contender(database, "b") as b:
        nobody = await lease(a).read()
        assert nobody == LeaseState()
        first = await acquire(a)
        assert (first.epoch, first.holder, first.lease_s) == (1, "a", 1.0)
        assert await lease(b).acquire(nobody) is None
        seen = await lease(b).read()
        assert seen == first
        beaten = await lease(a).renew()
        assert beaten.beat > first.beat
        assert await lease(b).acquire(seen) is None
        assert (await acquire(b)).epoch == 2


async def test_of_many_that_see_the_same_one_takes_it(database: str) -> None:
    stores = [SqlStore(database, lease_s=1.0, holder=f"h{n}") for n in range(6)]
    try:
        for store in stores:
            await store.open("east")
        taken = await asyncio.gather(*[lease(store).acquire(LeaseState()) for store in stores])
        assert sum(one is not None for one in taken) == 1
    finally:
        await asyncio.gather(*[store.close() for store in stores])


async def test_a_commit_is_a_beat(database: str) -> None:
    async with contender(database, "a") as a, contender(database, "b") as b:
        await acquire(a)
        at = await stage(a)
        seen = await lease(b).read()
        await at.commit(create_update("k", 1))
        assert await lease(b).acquire(seen) is None


async def test_who_lost_the_lease_cannot_write_one_row(database: str) -> None:
    async with contender(database, "a") as a, contender(database, "b") as b:
        await acquire(a)
        zombie = await stage(a)
        await zombie.commit(create_update("k", 1))
        async with a.audit(stream_info()) as marks:
            await marks.mark([create_update("k", 2), create_update("missing", 1)])
            position = await marks.suspect()
            await acquire(b)
            for writing in (
                zombie.commit(create_update("k", 2)),
                zombie.commit(create_update("k", 2), unreadable=[]),
                a.position(stream_info("s2")),
                marks.mark([create_update("other", 3)]),
                marks.suspect(),
                marks.judge(bogus=True),
                marks.repair(position),
                lease(a).renew(),
                lease(a).release(),
            ):
                with pytest.raises(LeaseLostError, match="another process holds the lease"):
                    await writing
            with pytest.raises(LeaseLostError):
                await a.known_streams()
            await acquire(a)
        await acquire(b)
        now = await stage(b)
        assert now.position.ordinal == 1
        assert (await now.bodies())["k"] == b'{"at":1}'
        assert len(await b.reader.streams()) == 1


async def test_an_epoch_that_is_given_twice_makes_no_two_writers(database: str) -> None:
    """A fail-over to a copy of the database that lags, or a restored one, loses the last take."""
    async with (
        contender(database, "a") as a,
        contender(database, "b") as b,
        contender(database, "c") as c,
    ):
        before = await acquire(a)
        assert (await acquire(b)).epoch == 2
        at = await stage(b)
        lost = text("UPDATE instep_lease SET epoch = 1, beat = :beat, holder = 'a'")
        await a._database.run(
            lambda connection: connection.execute(lost, {"beat": before.beat}), guarded=False
        )
        assert (await acquire(c)).epoch == 2
        with pytest.raises(LeaseLostError):
            await at.commit(create_update("k", 1))
        with pytest.raises(LeaseLostError):
            await lease(b).release()
        await (await stage(c)).commit(create_update("k", 1))


async def test_who_never_held_it_writes_nothing(database: str) -> None:
    async with contender(database, "a") as a:
        with pytest.raises(LeaseLostError, match="or nobody"):
            await a.position(stream_info())


async def test_who_gave_up_writes_nothing_more_even_while_nobody_took_it(database: str) -> None:
    async with contender(database, "a") as a:
        await acquire(a)
        at = await stage(a)
        await lease(a).release()
        assert (await lease(a).read()).holder == ""
        with pytest.raises(LeaseLostError):
            await at.commit(create_update("k", 1))
        assert (await acquire(a)).epoch == 3
        await at.commit(create_update("k", 1))


async def test_leases_of_several_consumers_are_their_own(database: str) -> None:
    async with contender(database, "a") as a, SqlStore(database, lease_s=2.0, holder="b") as b:
        await b.open("west")
        await acquire(a)
        await acquire(b)
        await lease(a).renew()
        leases = await a.reader.leases()
        assert {name: state.holder for name, state in leases.items()} == {"east": "a", "west": "b"}


async def test_the_holder_learns_at_its_beat_that_it_was_asked(database: str) -> None:
    async with contender(database, "a") as a, contender(database, "b") as b:
        with pytest.raises(SinkError, match="nobody holds a lease for the consumer 'east'"):
            await b.reader.ask_to_hand_over("east")
        await acquire(a)
        assert not (await lease(a).renew()).asked
        assert (await b.reader.ask_to_hand_over("east")).holder == "a"
        assert (await lease(a).renew()).asked
        await lease(a).release()
        taken = await acquire(b)
        assert not taken.asked
        assert not (await lease(b).renew()).asked


@pytest.mark.parametrize("stopped_in", ["idle", "copy"])
async def test_a_holder_that_stopped_in_its_transaction_is_ended(
    postgres_database: str, stopped_in: str
) -> None:
    """A silent connection stands for a process that is stopped."""
    async with contender(postgres_database, "b") as b:
        with closing(psycopg.connect(postgres_database)) as a:
            a.execute(
                "INSERT INTO instep_lease VALUES ('east', 5, '', 1, 'a', 1.0, 0, -1)",
            )
            a.commit()
            seen = await lease(b).read()
            a.execute("UPDATE instep_lease SET beat = beat + 1 WHERE consumer = 'east'")
            if stopped_in == "copy":
                a.pgconn.send_query(b"COPY instep_entity FROM STDIN")
            # Silent for too short a time: it may be alive.
            with pytest.raises(SinkError, match="a lock was not to be had"):
                await lease(b).acquire(seen)
            await asyncio.sleep(0.3)
            taken = await lease(b).acquire(seen)
            assert taken is not None
            assert (taken.epoch, taken.holder) == (6, "b")
            with closing(psycopg.connect(postgres_database)) as c:
                pids = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s"
                assert c.execute(pids, [a.info.backend_pid]).fetchone() == (0,)


async def test_a_server_that_works_for_the_holder_is_left_alone(postgres_database: str) -> None:
    async with contender(postgres_database, "a") as a, contender(postgres_database, "b") as b:
        await acquire(a)
        seen = await lease(b).read()
        slow = asyncio.create_task(
            a._database.run(lambda connection: connection.exec_driver_sql("SELECT pg_sleep(1)"))
        )
        await asyncio.sleep(0.5)
        with pytest.raises(SinkError, match="a lock was not to be had"):
            await lease(b).acquire(seen)
        await slow
        assert await lease(b).acquire(seen) is None
