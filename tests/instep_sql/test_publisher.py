"""A publisher brings each change to its target at least once, in order."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from aiohttp import web

from instep import ConsumerSettings, Publisher, SourceError
from instep.errors import ConfigurationError, JournalOffError
from instep.model.cloud_events import CloudEvent
from instep_http import CloudEventsTarget
from instep_nats import JetStreamTarget
from tests.instep_sql.store_kit import ON_SQLITE, Stage, create_update, end_record, stage
from tests.nats_kit import nats_server

pytestmark = pytest.mark.asyncio

QUICK = ConsumerSettings(reconnect_initial_s=0.01, reconnect_max_s=0.02)


class Target:
    """Takes events; fails before or after some, as it is told."""

    def __init__(self, fails: Sequence[str] = ()) -> None:
        self.events: list[CloudEvent] = []
        self._fails = list(fails)

    async def publish(self, events: Sequence[CloudEvent]) -> None:
        how = self._fails.pop(0) if self._fails else ""
        if how == "before":
            raise SourceError("it is away", retriable=True)
        self.events += events
        if how == "after":
            raise SourceError("its answer is lost", retriable=True)
        if how == "fatal":
            raise SourceError("it refuses")


def names(events: Sequence[CloudEvent]) -> list[tuple[str, str]]:
    return [(one.subject, one.type.split(".")[2]) for one in events]


async def published(at: Stage, target: Any, **given: Any) -> None:
    chosen = {"name": "p", "follow": False, "settings": QUICK, **given}
    async with asyncio.timeout(30):
        await Publisher(at.store.reader, target, **chosen).run()


async def test_an_event_says_what_has_happened(database: str) -> None:
    async with stage(database, journal="bodies") as at:
        await at.commit(create_update("a/b 1", 1))
        await at.commit(end_record("a/b 1", 2))
        target = Target()
        await published(at, target)
        created, deleted = map(_plain, target.events)
        assert created["specversion"] == "1.0"
        assert created["source"] == "/instep/east/s1"
        assert (created["type"], created["subject"]) == ("instep.entity.created.v1", "a/b 1")
        assert created["partitionkey"] == "/instep/east/s1/a%2Fb%201"
        assert created["datacontenttype"] == "application/json"
        assert created["data"]["class"] == "NODE"
        assert created["data"]["entity"] == {"at": 1}
        assert created["time"].endswith("Z")
        assert deleted["type"] == "instep.entity.deleted.v1"
        assert "data" not in deleted
        assert "datacontenttype" not in deleted
        (first, second) = [change async for change in at.store.changes()]
        assert created["id"] == f"{first.cursor}-{first.epoch}"
        assert deleted["id"] == f"{second.cursor}-{second.epoch}"


def _plain(event: CloudEvent) -> Any:
    """As a receiver sees it."""
    return json.loads(msgspec.json.encode(event))


async def test_it_goes_on_where_the_target_has_all(database: str) -> None:
    async with stage(database, journal="bodies") as at:
        await at.commit(create_update("a", 1), create_update("b", 1))
        target = Target()
        await published(at, target)
        await published(at, target)
        await at.commit(create_update("c", 2))
        await published(at, target)
        assert names(target.events) == [("a", "created"), ("b", "created"), ("c", "created")]
        other = Target()
        await published(at, other, name="other", classes=["LINK"])
        assert other.events == []


async def test_what_the_target_did_not_take_comes_again(database: str) -> None:
    async with stage(database, journal="bodies") as at:
        for number in range(7):
            await at.commit(create_update(f"k{number}", number))
        target = Target(["before", "", "after", "", "before"])
        await published(at, target, batch_changes=3)
        keys = [one.subject for one in target.events]
        assert keys == ["k0", "k1", "k2", "k3", "k4", "k5", "k3", "k4", "k5", "k6"]
        assert target.events[3].id == target.events[6].id
        await at.commit(create_update("z", 9))
        with pytest.raises(SourceError, match="refuses"):
            await published(at, Target(["fatal"]))
        again = Target()
        await published(at, again)
        assert names(again.events) == [("z", "created")]


async def test_it_may_begin_with_what_comes_from_now_on(database: str) -> None:
    async with stage(database, journal="bodies") as at:
        await at.commit(create_update("a", 1))
        target = Target()
        await published(at, target, from_now=True)
        await at.commit(create_update("b", 2))
        await published(at, target, from_now=True)
        assert names(target.events) == [("b", "created")]


async def test_without_a_journal_or_a_name_it_is_refused(database: str) -> None:
    async with stage(database) as at:
        await at.commit(create_update("a", 1))
        with pytest.raises(JournalOffError):
            await published(at, Target())
        with pytest.raises(ConfigurationError, match="no name"):
            Publisher(at.store.reader, Target(), name="")


async def test_cloud_events_over_http(database: str) -> None:
    received: list[Any] = []
    answers = [503, 200]

    async def take(request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == "Bearer x"
        kind = request.headers["Content-Type"]
        assert kind == "application/cloudevents-batch+json; charset=utf-8"
        status = answers.pop(0) if answers else 204
        if status < 300:
            received.append(await request.json())
        return web.Response(status=status)

    app = web.Application()
    app.add_routes([web.post("/events", take)])
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/events"
    try:
        async with (
            stage(database, journal="bodies") as at,
            CloudEventsTarget(url, headers={"Authorization": "Bearer x"}, max_bytes=700) as target,
        ):
            assert "Bearer" not in repr(target)
            await at.commit(*(create_update(f"k{number}", number) for number in range(5)))
            await published(at, target)
            assert [one["subject"] for batch in received for one in batch] == [
                f"k{number}" for number in range(5)
            ]
            assert len(received) > 1
            answers[:] = [400]
            await at.commit(create_update("z", 9))
            with pytest.raises(SourceError, match="answered 400"):
                await published(at, target)
    finally:
        await runner.cleanup()


@ON_SQLITE
async def test_jetstream_keeps_the_last_event_of_each_entity(database: str) -> None:
    async with (
        nats_server() as server,
        server.stream("ENTITIES", ["instep.>"]) as js,
        stage(database, journal="bodies") as at,
        JetStreamTarget(server.url, "ENTITIES") as target,
    ):
        await at.commit(create_update("a.b *", 1), create_update("c", 1))
        await at.commit(create_update("c", 2), end_record("a.b *", 2))
        await published(at, target)
        # The cursor is lost: the server knows the copies by their ids.
        await published(at, target, name="again")
        state = (await js.stream_info("ENTITIES")).state
        assert state.messages == 4
        gone = await js.get_last_msg("ENTITIES", "instep.east.s1.a%2Eb%20%2A")
        assert not gone.data
        assert gone.headers is not None
        assert gone.headers["ce-type"] == "instep.entity.deleted.v1"
        last = await js.get_last_msg("ENTITIES", "instep.east.s1.c")
        assert last.data is not None
        assert json.loads(last.data)["entity"] == {"at": 2}


@ON_SQLITE
async def test_jetstream_that_is_killed_misses_nothing(database: str) -> None:
    chance = random.Random(5)
    async with nats_server() as server:
        async with server.stream("ENTITIES", ["instep.>"]):
            pass
        async with (
            stage(database, journal="bodies") as at,
            JetStreamTarget(server.url, "ENTITIES") as target,
        ):
            publisher = Publisher(
                at.store.reader, target, name="p", batch_changes=10, settings=QUICK
            )
            running = asyncio.ensure_future(publisher.run())
            for moment in range(1, 31):
                await at.commit(*(create_update(f"k{n}", moment) for n in range(10)))
                if moment % 10 == 0:
                    await asyncio.sleep(chance.uniform(0, 0.1))
                    server.stop()
                    await server.start()
            end = await at.store.reader.journal_end()
            async with asyncio.timeout(60):
                while await at.store.reader.published("p") != end:
                    assert not running.done(), running
                    await asyncio.sleep(0.05)
            running.cancel()
            await asyncio.wait({running})
        async with server.stream("ENTITIES", ["instep.>"]) as js:
            moments: dict[str, list[int]] = {}
            subscription = await js.pull_subscribe("instep.>", "reader")
            state = (await js.stream_info("ENTITIES")).state
            left = state.messages
            while left:
                for message in await subscription.fetch(min(left, 100), timeout=10):
                    at_moment = json.loads(message.data)["entity"]["at"]
                    moments.setdefault(message.subject, []).append(at_moment)
                    left -= 1
        assert len(moments) == 10
        for told in moments.values():
            # Each comes; a copy comes with all that follows it in its batch.
            assert sorted(set(told)) == list(range(1, 31))
            first = [moment for place, moment in enumerate(told) if moment not in told[:place]]
            assert first == sorted(first)


@ON_SQLITE
async def test_a_stream_that_takes_no_such_subject_is_told(database: str) -> None:
    async with nats_server() as server:
        async with (
            server.stream("ORDERS", ["orders.>"]),
            stage(database, journal="bodies") as at,
            JetStreamTarget(server.url, "ORDERS") as target,
        ):
            await at.commit(create_update("a", 1))
            with pytest.raises(SourceError, match="no stream takes the subjects instep"):
                await published(at, target)
        with pytest.raises(ConfigurationError, match="a user and a token are both given") as caught:
            JetStreamTarget(server.url, "ORDERS", user="u", password="p", token="secret")
        assert "secret" not in str(caught.value)
        with pytest.raises(ConfigurationError, match="begins no subject"):
            JetStreamTarget(server.url, "ORDERS", prefix="a.>")
