"""Streams of which little or nothing can be read: they are never called aligned for it (A11)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from instep import Consumer
from instep.errors import UnreadableStreamError
from instep.model.freshness import Freshness, FreshnessState, StreamReport
from instep.runtime.health import StreamHealth
from instep.testing.relay import Relay, SwallowedMessages
from instep_sql import SqlStore
from instep_sql.plugin import sink
from instep_tapi.plugin import source
from instep_tapi.wire.authenticity import Hmac, HmacOptions
from instep_tapi_provider import Provider, ProviderSettings, RecordStyle, StreamSettings
from tests.end_to_end.site_kit import DEADLINE_S, QUICK, network, until

pytestmark = pytest.mark.asyncio


def signed(key: str, nodes: int = 6) -> Provider:
    """A provider whose records are signed with this key."""
    style = RecordStyle(sign=Hmac(HmacOptions(key)).sign if key else None)
    streams = (StreamSettings("all", style=style),)
    return Provider(network(nodes, 4), ProviderSettings(streams=streams))


@asynccontextmanager
async def consuming(
    url: str, folder: Path, key: str = "", **options: Any
) -> AsyncIterator[Consumer]:
    table = {"endpoints": [url], **options}
    if key:
        table["authenticity"] = {"kind": "hmac", "secret": key}
    store = SqlStore(f"sqlite:///{folder}/s.db")
    async with Consumer("test", source.build(table, "test"), store, QUICK) as consumer:
        yield consumer


async def stored(folder: Path) -> Freshness:
    """What whoever reads the store is told of the only stream."""
    reader = sink.reader(f"sqlite:///{folder}/s.db")
    try:
        (one,) = await reader.streams()
        return one.freshness
    finally:
        await reader.close()


async def told(folder: Path) -> StreamReport:
    found = (await stored(folder)).report
    assert found is not None
    return found


async def becomes(folder: Path, state: FreshnessState) -> Freshness:
    found = await stored(folder)
    for _ in range(int(DEADLINE_S / 0.1)):
        if found.state is state:
            return found
        await asyncio.sleep(0.1)
        found = await stored(folder)
    raise AssertionError(f"the store says: {found.text}")


@pytest.mark.parametrize("key", ["k1", ""])
async def test_a_key_that_refuses_everything_is_an_error_that_names_the_key(
    tmp_path: Path, key: str
) -> None:
    async with signed(key) as provider, consuming(provider.url, tmp_path, "k2") as consumer:
        with pytest.raises(UnreadableStreamError, match=r"none of \d+ records.*`authenticity`"):
            await consumer.aligned(DEADLINE_S)
        (stream,) = consumer.health().streams
        assert stream.phase == "aligning"
        assert not stream.caught_up
        await becomes(tmp_path, FreshnessState.UNREADABLE)
        async with asyncio.timeout(DEADLINE_S):
            while "`authenticity`" not in (await told(tmp_path)).trouble:
                await asyncio.sleep(0.1)


async def test_a_key_that_has_changed_leaves_what_is_stored_and_is_no_alignment(
    tmp_path: Path,
) -> None:
    async with signed("k1") as provider, consuming(provider.url, tmp_path, "k1") as consumer:
        await consumer.aligned(DEADLINE_S)
        await becomes(tmp_path, FreshnessState.ALIGNED)
    assert not (await stored(tmp_path)).in_step
    async with (
        signed("k2", nodes=5) as provider,
        consuming(provider.url, tmp_path, "k1") as consumer,
    ):
        with pytest.raises(UnreadableStreamError):
            await consumer.aligned(DEADLINE_S)
        reader = sink.reader(f"sqlite:///{tmp_path}/s.db")
        counts = await reader.count_entities()
        await reader.close()
        assert sum(one.entities for one in counts) == 32


async def test_records_that_cannot_be_read_are_counted_beside_the_alignment(
    tmp_path: Path,
) -> None:
    settings = ProviderSettings(streams=(StreamSettings("all"),))
    async with Provider(network(6, 4), settings) as provider:
        provider.set_faults(malformed_every=9)
        async with consuming(provider.url, tmp_path) as consumer:
            await consumer.aligned(DEADLINE_S)
            (stream,) = consumer.health().streams
            assert stream.freshness.text == "aligned, 3 unreadable"
            found = await becomes(tmp_path, FreshnessState.ALIGNED_UNREADABLE)
            assert found.unreadable == 3
        provider.set_faults(malformed_every=None)
        async with consuming(provider.url, tmp_path) as consumer:
            await consumer.aligned(DEADLINE_S)
            # It is the attempt that has not read them.
            assert consumer.health().streams[0].unreadable == 3
            consumer.realign("all")
            await until(
                lambda: not _only(consumer).unreadable and consumer.health().aligned, "all read"
            )
            await becomes(tmp_path, FreshnessState.ALIGNED)


def _only(consumer: Consumer) -> StreamHealth:
    (stream,) = consumer.health().streams
    return stream


async def test_a_compressed_websocket_that_has_lost_messages_heals_by_itself(
    tmp_path: Path,
) -> None:
    rule = SwallowedMessages()
    rule.active = False
    settings = ProviderSettings(streams=(StreamSettings("all"),))
    async with (
        Provider(network(6, 4), settings) as provider,
        Relay(provider.url.removeprefix("http://").partition("/")[0], [rule]) as relay,
        consuming(f"http://{relay.address}", tmp_path) as consumer,
    ):
        changes = count()

        async def change() -> None:
            at = next(changes)
            state = {"operational-state": "DISABLED", "x": f"{at * 7919 % 10_007:x}" * (at % 7 + 1)}
            provider.update(f"n{at % 6}", state)
            await asyncio.sleep(0.01)

        await consumer.aligned(DEADLINE_S)
        opened_at_us = _only(consumer).opened_at_us
        rule.active = True
        while rule.played < 20:
            await change()
        rule.active = False
        async with asyncio.timeout(2 * DEADLINE_S):
            # Each message inflates to something else, until another connection is opened.
            while _only(consumer).opened_at_us == opened_at_us:
                await change()
            while await bodies(tmp_path) != stated(provider) or not consumer.health().aligned:
                await asyncio.sleep(0.1)


async def bodies(folder: Path) -> dict[str, Any]:
    reader = sink.reader(f"sqlite:///{folder}/s.db")
    try:
        return {one.key: json.loads(one.body) async for one in reader.entities()}
    finally:
        await reader.close()


def stated(provider: Provider) -> dict[str, Any]:
    return {key: json.loads(body) for key, (_, body) in provider.entities("all").items()}
