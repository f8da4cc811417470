"""The sources behind a relay: TAPI over WebSocket, server-sent events and RESTCONF, and SDPi."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, Final

import aiohttp

from instep import AlignmentSettings, Consumer, ConsumerSettings
from instep.testing.relay import Relay, Rule
from instep_sdpi import SdpiSource
from instep_sdpi import read_options as read_sdpi
from instep_sql import SqlStore
from instep_tapi.facts.names import LogStorageStrategy
from instep_tapi.plugin import source as tapi
from instep_tapi_provider import DiscoveryStyle, Provider, ProviderSettings, StreamSettings
from tests.crash.sdpi import free_port
from tests.end_to_end.site_kit import network
from tests.instep_sdpi.provider_kit import FakeProvider, providing
from tests.wire.outcome import Outcome, Play, follow

__all__ = [
    "QUICK",
    "Changes",
    "network_provider",
    "sdpi",
    "sdpi_events",
    "stated",
    "tapi_restconf",
    "tapi_sse",
    "tapi_websocket",
]

QUICK: Final = ConsumerSettings(
    reconnect_initial_s=0.02,
    reconnect_max_s=0.3,
    reconnect_late_s=0.5,
    poll_state_s=0.2,
    alignment=AlignmentSettings(quiet_s=0.4, unreached_quiet_s=1.0),
)
TAPI: Final = {
    "connect_timeout_s": 1.0,
    "request_timeout_s": 3.0,
    "dead_peer_s": 1.0,
    "pong_interval_s": 0.2,
}
NODES: Final = 15


def network_provider() -> Provider:
    """A provider of one stream, with nothing between."""
    return Provider(network(NODES, 3), ProviderSettings(streams=(StreamSettings("all"),)))


async def tapi_websocket(play: Play, seed: int, folder: Path) -> Outcome:
    return await _tapi(play, seed, folder, "websockets", LogStorageStrategy.COMPACTED)


async def tapi_sse(play: Play, seed: int, folder: Path) -> Outcome:
    return await _tapi(play, seed, folder, "sse", LogStorageStrategy.COMPACTED)


async def tapi_restconf(play: Play, seed: int, folder: Path) -> Outcome:
    """A log that cannot give state alone: the state is read by RESTCONF GET."""
    return await _tapi(play, seed, folder, "websockets", LogStorageStrategy.TRUNCATED)


async def _tapi(
    play: Play, seed: int, folder: Path, protocol: str, storage: LogStorageStrategy
) -> Outcome:
    settings = ProviderSettings(
        streams=(StreamSettings("all", storage=storage),),
        discovery=DiscoveryStyle(protocol=protocol),
        pong_timeout_s=2.0,
        comment_every_s=0.3,
    )
    rule = play.rule()
    store = folder / "store.db"
    async with (
        Provider(network(NODES, 3), settings) as provider,
        _relayed(provider.url, rule, seed) as relay,
    ):
        source = tapi.build({"endpoints": [f"http://{relay.address}"], **TAPI}, "wire")
        async with Consumer("wire", source, SqlStore(f"sqlite:///{store}"), QUICK) as consumer:
            if not play.from_start:
                await consumer.aligned(30.0)
                rule.active = True
                provider.drop_clients()  # whoever comes back asks anew
            return await follow(
                rule,
                relay,
                heals=play.heals,
                change=Changes(provider),
                held=lambda: stored(store),
                truth=lambda: stated(provider),
                health=consumer.health,
            )


class Changes:
    """Changes one node after the other of a simulated provider."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self._place = 0

    async def __call__(self) -> None:
        """Make one change."""
        self._place += 1
        state = "ENABLED" if self._place // NODES % 2 else "DISABLED"
        body = {"operational-state": state, "x-change": self._place}
        self._provider.update(f"n{self._place % NODES}", body)


def stated(provider: Provider) -> dict[str, Any]:
    """Entity-key to body, as the provider states it."""
    return {key: json.loads(body) for key, (_, body) in provider.entities("all").items()}


async def stored(store: Path) -> dict[str, Any]:
    """Entity-key to body, as stored; empty before there is a store."""
    with closing(sqlite3.connect(store, timeout=30)) as raw:
        try:
            rows = raw.execute("SELECT key, body FROM instep_entity").fetchall()
        except sqlite3.OperationalError:
            return {}
    return {key: json.loads(body) for key, body in rows}


async def sdpi(play: Play, seed: int, folder: Path) -> Outcome:
    """The requests to a BICEPS provider."""
    async with providing() as provider, _relayed(provider.url, play.rule(), seed) as relay:
        provider.url = f"http://{relay.address}/device"
        return await _sdpi(play, folder, provider, relay, {"listen": "127.0.0.1:0"})


async def sdpi_events(play: Play, seed: int, folder: Path) -> Outcome:
    """The reports of a BICEPS provider: here it sends, and the source listens."""
    listen = f"127.0.0.1:{free_port()}"
    async with providing() as provider, _relayed(f"http://{listen}", play.rule(), seed) as relay:
        options = {"listen": listen, "notify_to": f"http://{relay.address}"}
        return await _sdpi(play, folder, provider, relay, options)


@asynccontextmanager
async def _relayed(url: str, rule: Rule, seed: int) -> AsyncIterator[Relay]:
    upstream = url.removeprefix("http://").partition("/")[0]
    async with Relay(upstream, [rule], seed=seed) as relay:
        yield relay


async def _sdpi(
    play: Play, folder: Path, provider: FakeProvider, relay: Relay, options: dict[str, Any]
) -> Outcome:
    store = folder / "store.db"
    rule = relay.rules[0]
    table = {
        "provider": provider.url,
        "feed": {"reorder_window_s": 0.3},
        "request_timeout_s": 3.0,
        "status_every_s": 0.5,
        **options,
    }
    provider.expires_s = 3.0
    timeout = aiohttp.ClientTimeout(total=2.0)
    confirmed = status = 0
    provider.metrics = {f"m{n}": ("Größe", 0) for n in range(8)}
    place = 0

    async def change() -> None:
        """State a change, and send it to all: to each until it confirms, eight times at most."""
        nonlocal place, confirmed, status
        place += 1
        report = provider.set(f"m{place % 8}", f"Größe {place}")
        for subscription in list(provider.subscriptions.values()):
            for _ in range(8):
                try:
                    status = await provider.post(subscription, report, subscription.number)
                except (aiohttp.ClientError, OSError):
                    status = 0
                if 200 <= status < 300:
                    subscription.number += 1
                    confirmed += 1
                    break
                await asyncio.sleep(0.02)
            else:
                provider.subscriptions.pop(subscription.name, None)

    async def held() -> dict[str, Any]:
        found = await stored(store)
        return {
            key.removeprefix("state/"): body["MetricValue"]["Value"]
            for key, body in found.items()
            if key.startswith("state/")
        }

    def truth() -> dict[str, Any]:
        return {handle: value for handle, (value, _) in provider.metrics.items()}

    source = SdpiSource(read_sdpi(table, "wire"))
    async with (
        aiohttp.ClientSession(timeout=timeout) as provider.client,
        Consumer("wire", source, SqlStore(f"sqlite:///{store}"), QUICK) as consumer,
    ):
        if not play.from_start:
            await consumer.aligned(30.0)
            rule.active = True
        outcome = await follow(
            rule,
            relay,
            heals=play.heals,
            change=change,
            held=held,
            truth=truth,
            health=consumer.health,
        )
    if outcome.result == "ok" and not confirmed and "notify_to" in options:
        # GetMdib alone has brought it, again and again.
        told = f"no report was confirmed: the last got {status or 'no answer'}"
        return Outcome("refused" if 400 <= status < 500 else "differs", told)
    return outcome
