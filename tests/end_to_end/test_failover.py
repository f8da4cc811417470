"""What a consumer does with several instances of a provider (TR-548 ST-4.2), with real peers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from instep import Consumer, Phase
from instep_tapi.facts.names import CONDITION_DETECTOR, StreamState
from instep_tapi_provider import AuthSettings, Provider, ProviderSettings, StreamSettings
from instep_tapi_provider.stream import Counters
from tests.end_to_end.site_kit import Site, network, until

pytestmark = pytest.mark.asyncio

NOW = {"leave_after_s": 0.0, "probe_every_s": 0.05}
LOGIN = {"kind": "login", "path": "/login", "token_field": "token"}


def instance(*streams: StreamSettings, **settings: Any) -> Provider:
    chosen = streams or (StreamSettings("all"),)
    return Provider(network(4, 4), ProviderSettings(streams=chosen, **settings))


@asynccontextmanager
async def two(
    folder: Path, first: Provider, second: Provider, **fail_over: Any
) -> AsyncIterator[tuple[Site, dict[str, Any]]]:
    """Both instances are served; the site is that of the second. With the source's options."""
    async with first, second:
        endpoints = [first.url, second.url]
        yield Site(second, folder), {"endpoints": endpoints, "fail_over": NOW | fail_over}


async def gone(served: Provider) -> asyncio.Task[None]:
    """The instance is not served any more until the task that is returned is cancelled."""
    down = asyncio.create_task(served.restart(down_s=600.0))
    await asyncio.sleep(0.05)
    return down


async def moved(consumer: Consumer, served: Provider) -> None:
    await until(lambda: {s.endpoint for s in consumer.health().streams} == {served.url}, "the move")


async def test_all_streams_go_over_together_and_health_reports_why(tmp_path: Path) -> None:
    split = (StreamSettings("net"), StreamSettings("alarms", frozenset({CONDITION_DETECTOR})))
    a, b = instance(*split), instance(*split)
    async with two(tmp_path, a, b) as (here, options), here.consumer(**options) as consumer:
        await consumer.aligned(30)
        assert {s.endpoint for s in consumer.health().streams} == {a.url}
        assert consumer.health().left == ""
        # What both instances state now, the one that is left does not any more.
        for served in (a, b):
            served.raise_alarm("n1", detector=7)
        b.delete("n3")
        down = await gone(a)
        await moved(consumer, b)
        await consumer.aligned(30)
        await here.equal("net")
        await here.equal("alarms")
        assert len(await here.store("alarms")) == 1
        assert consumer.health().left.startswith(f"{a.url} for {b.url}: ")
        down.cancel()


def _beyond(seen: Counters, connections: int) -> bool:
    return seen.connections > connections


async def test_a_connection_that_is_lost_is_no_reason_to_leave(tmp_path: Path) -> None:
    a, b = instance(), instance()
    async with two(tmp_path, a, b) as (here, options), here.consumer(**options) as consumer:
        await consumer.aligned(30)
        seen = a.counters("all")
        for _ in range(3):
            before = seen.connections
            a.drop_clients()
            await until(partial(_beyond, seen, before), "the connection")
        assert consumer.health().left == ""
        assert b.counters("all").connections == 0
        assert here.attempt(consumer) == 1


async def test_an_instance_that_refuses_streams_is_left(tmp_path: Path) -> None:
    a, b = instance(), instance()
    async with two(tmp_path, a, b) as (here, options), here.consumer(**options) as consumer:
        await consumer.aligned(30)
        # Discovery still works there, the stream does not.
        a.pause("all", StreamState.TERMINATED)
        a.drop_clients()
        await moved(consumer, b)
        await consumer.aligned(30)
        await here.equal()


async def test_the_preferred_instance_is_gone_back_to_when_it_is_healthy(tmp_path: Path) -> None:
    a, b = instance(), instance()
    async with two(tmp_path, a, b, fail_back_after_s=0.3) as (here, options):
        down = await gone(a)
        async with here.consumer(**options) as consumer:
            await consumer.aligned(30)
            await moved(consumer, b)
            down.cancel()
            await asyncio.gather(down, return_exceptions=True)
            await a.restart()
            await moved(consumer, a)
            await consumer.aligned(30)
            assert "preferred" in consumer.health().left
            assert here.attempt(consumer) == 2


async def test_round_robin_stays(tmp_path: Path) -> None:
    a, b = instance(), instance()
    async with (
        two(tmp_path, a, b, policy="round-robin", fail_back_after_s=0.0) as (here, options),
        here.consumer(**options) as consumer,
    ):
        await consumer.aligned(30)
        await a.restart(down_s=0.6)
        await moved(consumer, b)
        await consumer.aligned(30)
        await asyncio.sleep(0.3)
        assert {s.endpoint for s in consumer.health().streams} == {b.url}


async def test_each_instance_has_its_own_login(tmp_path: Path) -> None:
    auth = AuthSettings(username="u", password="p", login_path="/login")
    a, b = instance(auth=auth), instance(auth=auth)
    shown: dict[str, set[str]] = {}
    for served in (a, b):
        _record_logins(served, shown)
    login = {**LOGIN, "body": {"username": "u", "password": "p"}}
    async with (
        two(tmp_path, a, b) as (here, options),
        here.consumer(auth=login, **options) as consumer,
    ):
        await consumer.aligned(30)
        down = await gone(a)
        await moved(consumer, b)
        await consumer.aligned(30)
        down.cancel()
    assert shown[a.url]
    assert shown[b.url]
    assert shown[a.url].isdisjoint(shown[b.url])


def _record_logins(served: Provider, shown: dict[str, set[str]]) -> None:
    logins = served._server.logins
    valid = logins.valid

    def noting(authorization: str) -> bool:
        if authorization:
            shown.setdefault(served.url, set()).add(authorization)
        return valid(authorization)

    logins.valid = noting  # type: ignore[method-assign]


async def test_an_instance_that_refuses_our_login_is_passed_over(tmp_path: Path) -> None:
    a, b = instance(auth=AuthSettings(tokens=frozenset({"other"}))), instance()
    async with two(tmp_path, a, b) as (here, options):
        auth = {"kind": "bearer", "token": "mine"}
        async with here.consumer(auth=auth, **options) as consumer:
            await consumer.aligned(30)
            await moved(consumer, b)


async def test_a_restart_that_finds_the_other_instance_keeps_one_stream(tmp_path: Path) -> None:
    a, b = instance(StreamSettings("all")), instance(StreamSettings("everything"))
    async with two(tmp_path, a, b) as (here, options):
        async with here.consumer(**options) as consumer:
            await consumer.aligned(30)
        down = await gone(a)
        async with here.consumer(**options) as consumer:
            await consumer.aligned(30)
            [stream] = consumer.health().streams
            assert (stream.stream, stream.endpoint, stream.attempt) == ("all", b.url, 2)
            assert stream.phase is Phase.ALIGNED
        assert await here.store("all") == here.truth("everything")
        assert await here.store("everything") == {}
        down.cancel()
