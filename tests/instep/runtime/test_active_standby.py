"""Two consumers of one name on one store: one follows, the other stands by."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from instep import Consumer, ConsumerState, LeaseLostError, Phase, StoreUnavailableError
from instep.coordination import Role
from instep.coordination.lease import LeaseState
from instep.errors import AuthenticationError
from instep_sql import SqlStore
from instep_sql.plugin import sink
from tests.instep.runtime.consumer_kit import LATER, QUICK, keys
from tests.instep.scripted_source_kit import SILENT, ScriptedSource, info, records

pytestmark = pytest.mark.asyncio

LEASE_S = 2.0


def source() -> ScriptedSource:
    """Whoever follows it, and however often, reads the same three records."""
    return ScriptedSource([records(0, 1, 2), SILENT])


def contender(folder: Path, name: str, served: ScriptedSource | None = None) -> Consumer:
    store = SqlStore(f"sqlite:///{folder}/s.db", lease_s=LEASE_S, holder=name)
    return Consumer("test", served or source(), store, QUICK, environment=LATER)


async def until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not done():
            await asyncio.sleep(0.01)


def role(consumer: Consumer) -> Role | None:
    pair = consumer.health().pair
    return pair.role if pair else None


def holder(consumer: Consumer) -> str:
    pair = consumer.health().pair
    return pair.holder if pair else ""


async def test_a_sink_without_a_lease_makes_no_pair(tmp_path: Path) -> None:
    store = SqlStore(f"sqlite:///{tmp_path}/s.db")
    async with Consumer("test", source(), store, QUICK, environment=LATER) as alone:
        await alone.aligned(20)
        assert alone.health().pair is None
        with pytest.raises(LeaseLostError, match="holds no lease"):
            await alone.handover()


async def test_one_follows_and_the_other_stands_by(tmp_path: Path) -> None:
    second = source()
    async with contender(tmp_path, "a") as a:
        await a.aligned(20)
        assert role(a) is Role.ACTIVE
        async with contender(tmp_path, "b", second) as b:
            # Before the lease was read, nobody can say that another process is active.
            assert b.health().state is ConsumerState.STARTING
            await until(lambda: b.health().state is ConsumerState.STANDBY)
            assert holder(b) == "a"
            health = b.health()
            assert health.pair is not None
            assert (health.pair.epoch, health.streams) == (1, ())
            assert not health.aligned
            await asyncio.sleep(2 * LEASE_S)
            assert (role(a), role(b)) == (Role.ACTIVE, Role.STANDBY)
            assert second.starts == []
            assert a.health().aligned
            with pytest.raises(LeaseLostError, match="holds no lease"):
                await b.handover()


async def test_stopping_gives_the_lease_up(tmp_path: Path) -> None:
    async with contender(tmp_path, "b") as b:
        await b.aligned(20)
        async with contender(tmp_path, "a") as a:
            await until(lambda: role(a) is Role.STANDBY and a.health().pair is not None)
            await b.__aexit__(None, None, None)
            await a.aligned(20)
            assert a.health().state in (ConsumerState.RUNNING, ConsumerState.RETRYING)
    assert await keys(SqlStore(f"sqlite:///{tmp_path}/s.db")) == ["key-0", "key-1", "key-2"]


async def test_failing_for_good_gives_the_lease_up(tmp_path: Path) -> None:
    failing = ScriptedSource([records(0), AuthenticationError("refused")])
    async with contender(tmp_path, "a", failing) as a:
        async with asyncio.timeout(20):
            with pytest.raises(AuthenticationError):
                await a.wait()
        assert a.health().state is ConsumerState.FAILED
        reader = sink.reader(f"sqlite:///{tmp_path}/s.db")
        assert [lease.holder for lease in (await reader.leases()).values()] == [""]
        await reader.close()


async def test_handover_moves_it_and_reports_to_whom(tmp_path: Path) -> None:
    async with contender(tmp_path, "a") as a:
        await a.aligned(20)
        async with contender(tmp_path, "b") as b:
            async with asyncio.timeout(20):
                assert await a.handover() == "b"
            await b.aligned(20)
            assert (role(a), role(b)) == (Role.STANDBY, Role.ACTIVE)
            assert b.health().streams[0].phase is Phase.ALIGNED
            async with asyncio.timeout(20):
                assert await b.handover() == "a"


async def test_handover_with_nobody_there_comes_back(tmp_path: Path) -> None:
    async with contender(tmp_path, "a") as a:
        await a.aligned(20)
        async with asyncio.timeout(20):
            assert await a.handover() == "a"
        await a.aligned(20)


async def test_handover_can_be_asked_for_through_the_store(tmp_path: Path) -> None:
    async with contender(tmp_path, "a") as a:
        await a.aligned(20)
        async with contender(tmp_path, "b") as b, SqlStore(f"sqlite:///{tmp_path}/s.db") as store:
            await store.reader.ask_to_hand_over("test")
            await b.aligned(20)
            assert role(a) is not Role.ACTIVE


async def test_one_that_was_superseded_stands_by_and_can_take_over_again(tmp_path: Path) -> None:
    """As after a stop of the whole process: others took the lease meanwhile."""
    async with contender(tmp_path, "a") as a:
        await a.aligned(20)
        kinds_seen = asyncio.create_task(_kinds(a))
        async with SqlStore(f"sqlite:///{tmp_path}/s.db", lease_s=LEASE_S, holder="b") as b:
            await b.open("test")
            lease = b.lease
            assert lease is not None
            while await lease.acquire(await lease.read()) is None:
                pass
            await until(lambda: role(a) is Role.STANDBY)
            assert a.health().state is ConsumerState.STANDBY
            await b.position(info())
        await until(lambda: role(a) is Role.ACTIVE)
        await a.aligned(20)
        await a.__aexit__(None, None, None)
        kinds = [kind for kind in await kinds_seen if kind in ("superseded", "standby", "active")]
        assert kinds == ["superseded", "standby", "active"]


async def _kinds(consumer: Consumer) -> list[str]:
    return [event.kind async for event in consumer.events()]


async def test_a_store_that_is_away_is_reported_and_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqlStore(f"sqlite:///{tmp_path}/s.db", lease_s=LEASE_S, holder="a")
    assert store.lease is not None

    async def away() -> LeaseState:
        raise StoreUnavailableError("away", where="there")

    with monkeypatch.context() as patch:
        patch.setattr(store.lease, "read", away)
        consumer = Consumer("test", source(), store, QUICK, environment=LATER)
        await consumer.__aenter__()
        await until(lambda: consumer.health().error != "")
        assert (consumer.health().state, consumer.health().error) == ("starting", "there: away")
    await consumer.aligned(20)
    assert consumer.health().error == ""
    await consumer.__aexit__(None, None, None)
