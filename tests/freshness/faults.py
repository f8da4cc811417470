"""The faults after which a word may stand longer than it should, each with real parts."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from instep import Consumer, Subscription
from instep.config.plugins import open_reader
from instep.errors import InstepError, JournalDivergedError
from instep.model.batches import Batch
from instep.model.freshness import FreshnessState
from instep.model.position import Position
from instep.model.records import Record, RecordType
from instep.model.streams import StreamInfo
from instep.ports.reader import StoreReader
from instep.testing.relay import Forward, HttpRule, Relay, Request, Response, SwallowedMessages
from instep_sql import SqlStore
from instep_tapi.facts.names import LogStorageStrategy
from instep_tapi.plugin import source
from instep_tapi.wire.authenticity import Hmac, HmacOptions
from instep_tapi_provider import Provider, ProviderSettings, RecordStyle, StreamSettings
from tests.end_to_end.site_kit import network
from tests.postgres_kit import replica_of, serving

__all__ = ["FAULTS", "Fault"]

_INSTEP: Final = [sys.executable, "-m", "instep.cli"]
_CONFIG: Final = """
[[consumers]]
name = "test"
workers = {workers}
source = {{ kind = "tapi", endpoints = ["{url}"] }}
sink = {{ kind = "sql", url = "{store}", journal = "changes" }}
settings = {{ kill_silent_after_s = 3600 }}
"""
_LOOK_S: Final = 0.05
_LONGEST_S: Final = 180.0
_READY_S: Final = 900.0
"""Longest time until all is well before the fault, on a machine that is busy."""
_REPORT_S: Final = 10.0 / 3
"""How often the store hears of what no event tells."""

Truth = Callable[[], Mapping[str, Any]]


class Fault(NamedTuple):
    """A fault, how long a green word may stand over wrong data, and what measures it."""

    limit_s: float
    limit: str
    """The limit in words, with the settings that make it."""
    measure: Callable[[Path], Awaitable[float]]


def _truth(provider: Provider) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for stream in provider.streams:
        stated = provider.entities(stream.stream_id).items()
        found |= {key: json.loads(body) for key, (_, body) in stated}
    return found


class _Watch:
    """Looks into a store as an operator does: what it holds, and what it says of itself."""

    def __init__(self, url: str) -> None:
        self.reader: StoreReader = open_reader(url)

    async def is_green(self) -> bool:
        found = await self.reader.freshness()
        return bool(found) and all(one.state is FreshnessState.ALIGNED for one in found)

    async def held(self) -> dict[str, Any]:
        return {one.key: json.loads(one.body) async for one in self.reader.entities()}

    async def aligned(self, truth: Truth) -> None:
        """Wait until all is well."""
        async with asyncio.timeout(_READY_S):
            while True:
                with suppress(InstepError):
                    if await self.is_green() and await self.held() == truth():
                        return
                await asyncio.sleep(_LOOK_S)

    async def stood_s(self, truth: Truth, *, wrong_at_s: float | None = None) -> float:
        """How long it is green while it differs from the truth, in one piece. `wrong_at_s`: it is
        known to be wrong from then on, whatever it holds.
        """
        longest_s, since_s, begun_s = 0.0, wrong_at_s, time.monotonic()
        while time.monotonic() - begun_s < _LONGEST_S:
            wrong = wrong_at_s is not None or await self.held() != truth()
            green = await self.is_green()
            now_s = time.monotonic()
            if green and wrong:
                since_s = since_s or now_s
                longest_s = max(longest_s, now_s - since_s)
            elif not green and wrong:
                return longest_s
            elif since_s is not None:
                # It was made right while the word stood.
                return longest_s
            await asyncio.sleep(_LOOK_S)
        return longest_s


@asynccontextmanager
async def _program(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *_INSTEP, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGCONT)
            process.terminate()
        with suppress(TimeoutError):
            async with asyncio.timeout(10):
                await process.communicate()
        with suppress(ProcessLookupError):
            process.kill()


def _config(folder: Path, url: str, workers: int = 1) -> tuple[str, str]:
    """The file, and the URL of the store."""
    store = f"sqlite:///{folder}/s.db"
    file = folder / "instep.toml"
    file.write_text(_CONFIG.format(url=url, store=store, workers=workers))
    return str(file), store


def _served(*classes: str, **style: Any) -> Provider:
    streams = [StreamSettings(name.lower(), classes=frozenset({name}), **style) for name in classes]
    return Provider(
        network(6, 4), ProviderSettings(streams=tuple(streams or [StreamSettings("all", **style)]))
    )


def _change(provider: Provider, at: int) -> None:
    provider.update(f"n{at % 6}", {"operational-state": "DISABLED", "x-change": at})


async def hung_worker(folder: Path) -> float:
    provider = _served("NODE", "NODE_EDGE_POINT")
    async with provider:
        file, url = _config(folder, provider.url, workers=2)
        async with _program("run", file, "--format", "jsonl", "--period", "3600") as process:
            assert process.stdout is not None
            pids: list[int] = []
            async with asyncio.timeout(_READY_S):
                while len(pids) < 2:
                    line = json.loads(await process.stdout.readline())
                    if line["event"] == "worker-started":
                        pids.append(int(line["text"].split()[4].rstrip(",")))
            watch = _Watch(url)
            await watch.aligned(lambda: _truth(provider))
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            try:
                for at in range(6):
                    _change(provider, at)
                return await watch.stood_s(lambda: _truth(provider))
            finally:
                for pid in pids:
                    os.kill(pid, signal.SIGCONT)


@asynccontextmanager
async def _consuming(
    endpoint: str, folder: Path, **options: Any
) -> AsyncIterator[tuple[Consumer, _Watch]]:
    store = f"sqlite:///{folder}/s.db"
    table = {"endpoints": [endpoint], **options}
    async with Consumer("test", source.build(table, "test"), SqlStore(store)) as consumer:
        await consumer.aligned(_READY_S)
        yield consumer, _Watch(store)


def _address(provider: Provider) -> str:
    return provider.url.removeprefix("http://").partition("/")[0]


async def wrong_key(folder: Path) -> float:
    def signed(key: str) -> Provider:
        return _served(style=RecordStyle(sign=Hmac(HmacOptions(key)).sign))

    async with signed("k1") as one, signed("k2") as other, Relay(_address(one)) as relay:
        key = {"kind": "hmac", "secret": "k1"}
        async with _consuming(f"http://{relay.address}", folder, authenticity=key) as (_, watch):
            await watch.aligned(lambda: _truth(one))
            for at in range(6):
                _change(other, at)
            relay.upstream = _address(other)
            await relay.cut()
            return await watch.stood_s(lambda: _truth(other))


async def garbage_on_the_wire(folder: Path) -> float:
    rule = SwallowedMessages()
    rule.active = False
    async with (
        _served() as provider,
        Relay(_address(provider), [rule]) as relay,
        _consuming(f"http://{relay.address}", folder) as (_, watch),
    ):
        await watch.aligned(lambda: _truth(provider))
        rule.active = True
        changing = asyncio.create_task(_storm(provider, rule))
        try:
            return await watch.stood_s(lambda: _truth(provider))
        finally:
            changing.cancel()
            await asyncio.gather(changing, return_exceptions=True)


async def _storm(provider: Provider, rule: SwallowedMessages) -> None:
    for at in range(1_000_000):
        _change(provider, at)
        rule.active = rule.played < 20
        await asyncio.sleep(0.01)


async def promoted_replica(_folder: Path) -> float:
    async def append(url: str, begin: int, count: int) -> None:
        async with SqlStore(url, journal="changes") as store:
            await store.open("east")
            stream = StreamInfo(id="s1", origin="wss://a", kind="tapi")
            at = await store.position(stream)
            for n in range(begin, begin + count):
                record = Record("s1", f"k{n}", RecordType.CREATE_UPDATE, f"t{n}", n, body=b"{}")
                ordinal = at.ordinal + 1
                position = Position(token=record.token, ordinal=ordinal, attempt=1, lineage=1)
                await store.commit(Batch("s1", position, ordinal - 1, [record]))
                at = position

    with serving() as primary:
        url = primary.url()
        await append(url, 1, 5)
        with replica_of(primary) as replica:
            replica.wait_for("SELECT count(*) FROM instep_change", 5)
            replica.stop()
            await append(url, 6, 4)
            reader = open_reader(url)
            try:
                subscription = Subscription(reader)
                batches = aiter(subscription)
                await anext(batches)
                primary.stop(immediate=True)
                replica.take_over(primary)
                begun_s = time.monotonic()
                with suppress(JournalDivergedError):
                    await asyncio.wait_for(anext(batches), _LONGEST_S)
                return time.monotonic() - begun_s
            finally:
                await reader.close()


async def stopped_consumer(folder: Path) -> float:
    async with _served() as provider:
        file, url = _config(folder, provider.url)
        async with _program("run", file, "--format", "jsonl", "--period", "3600") as process:
            watch = _Watch(url)
            await watch.aligned(lambda: _truth(provider))
            process.kill()
            _change(provider, 1)
            return await watch.stood_s(lambda: _truth(provider))


async def hung_provider(folder: Path) -> float:
    ready = folder / "ready"
    async with _program("provider", "--port", "0", "--ready-file", str(ready)) as process:
        async with asyncio.timeout(_LONGEST_S):
            while not ready.exists() or not ready.read_text().strip():
                await asyncio.sleep(_LOOK_S)
        endpoint = ready.read_text().strip()
        async with _consuming(endpoint, folder) as (_, watch):
            async with asyncio.timeout(_LONGEST_S):
                while not await watch.is_green():
                    await asyncio.sleep(_LOOK_S)
            process.send_signal(signal.SIGSTOP)
            # What the network does from now on is told by nobody.
            return await watch.stood_s(dict, wrong_at_s=time.monotonic())


async def lost_log(folder: Path) -> float:
    async with (
        _served() as provider,
        Relay(_address(provider)) as relay,
        _consuming(f"http://{relay.address}", folder) as (_, watch),
    ):
        await watch.aligned(lambda: _truth(provider))
        upstream, relay.upstream = relay.upstream, "127.0.0.1:9"
        await relay.cut()
        async with asyncio.timeout(_LONGEST_S):
            while await watch.is_green():
                await asyncio.sleep(_LOOK_S)
        stated = _truth(provider).items()
        provider.delete(next(key for key, body in stated if body.get("uuid") == "n5p3"))
        provider.set_faults(forget_log=True)
        relay.upstream = upstream
        return await _until_right_s(watch, lambda: _truth(provider))


class _Empty(HttpRule):
    """Answers the state of the network with an empty object."""

    name = "empty-answer"

    async def handle(self, request: Request, forward: Forward) -> Response:
        response = await forward(request)
        resource = request.target.rpartition("/")[2]
        is_state = resource.endswith("context") and "stream" not in resource
        if request.method == "GET" and is_state and self.strikes():
            response.headers.remove("Content-Encoding")
            response.body = b"{}"
        return response


async def empty_answer(folder: Path) -> float:
    rule = _Empty()
    rule.active = False
    async with (
        _served(storage=LogStorageStrategy.TRUNCATED) as provider,
        Relay(_address(provider), [rule]) as relay,
        _consuming(f"http://{relay.address}", folder) as (consumer, watch),
    ):
        await watch.aligned(lambda: _truth(provider))
        rule.active = True
        consumer.realign("all")
        async with asyncio.timeout(_LONGEST_S):
            while not rule.played:
                await asyncio.sleep(_LOOK_S)
        return await _until_right_s(watch, lambda: _truth(provider), within_s=60.0)


async def _until_right_s(watch: _Watch, truth: Truth, *, within_s: float = 60.0) -> float:
    """How long it is green and wrong in all, until it is green and right for a while."""
    stood_s, begun_s, right_s = 0.0, time.monotonic(), 0.0
    last_s = begun_s
    while time.monotonic() - begun_s < within_s and right_s < 10.0:
        wrong, green = await watch.held() != truth(), await watch.is_green()
        now_s = time.monotonic()
        stood_s += (now_s - last_s) if green and wrong else 0.0
        right_s = right_s + (now_s - last_s) if green and not wrong else 0.0
        last_s = now_s
        await asyncio.sleep(_LOOK_S)
    return stood_s


FAULTS: Final = {
    "hung worker": Fault(10.0, "`stale_after_s` (10 s)", hung_worker),
    "wrong key": Fault(_REPORT_S, "a third of `stale_after_s`", wrong_key),
    "garbage on the wire": Fault(
        _REPORT_S, "a third of `stale_after_s`, once a message follows", garbage_on_the_wire
    ),
    "promoted replica": Fault(1.0, "a look of the subscriber (1 s)", promoted_replica),
    "stopped consumer": Fault(10.0, "`stale_after_s` (10 s)", stopped_consumer),
    "hung provider": Fault(
        75.0 + _REPORT_S,
        "`dead_peer_s` (60 s), 15 s for the answer to a Ping, a third of `stale_after_s`",
        hung_provider,
    ),
    "lost log": Fault(_REPORT_S, "a third of `stale_after_s`", lost_log),
    "empty answer": Fault(_REPORT_S, "a third of `stale_after_s`", empty_answer),
}
"""By name, in the order of the table."""
