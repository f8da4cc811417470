"""A real provider, a real consumer and a real store, joined; and the comparison of both sides."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from instep import AlignmentSettings, Consumer, ConsumerSettings
from instep_sql import SqlStore
from instep_sql.plugin import sink
from instep_tapi.plugin import source
from instep_tapi_provider import Context, Provider, ProviderSettings, StreamSettings

QUICK = ConsumerSettings(
    reconnect_initial_s=0.01,
    reconnect_max_s=0.1,
    poll_state_s=0.1,
    alignment=AlignmentSettings(quiet_s=0.3, unreached_quiet_s=1.0),
)
DEADLINE_S = 30.0


def network(nodes: int = 20, ports: int = 14) -> Context:
    """A context of one topology: `nodes` nodes with `ports` ports each, 302 entities by default."""
    return Context(
        {
            "uuid": "context",
            "tapi-topology:topology-context": {
                "topology": [
                    {
                        "uuid": "topology",
                        "node": [
                            {
                                "uuid": f"n{n}",
                                "operational-state": "ENABLED",
                                "owned-node-edge-point": [
                                    {"uuid": f"n{n}p{p}", "operational-state": "ENABLED"}
                                    for p in range(ports)
                                ],
                            }
                            for n in range(nodes)
                        ],
                    }
                ]
            },
        }
    )


def provider(content: Context | None = None, tapi: str = "2.1.3", **stream: Any) -> Provider:
    """A provider with one stream, `all`, of everything."""
    settings = ProviderSettings(streams=(StreamSettings("all", **stream),))
    return Provider(content or network(), settings.of_edition(tapi))


class Site:
    """One provider and where its consumer keeps its store."""

    def __init__(self, served: Provider, folder: Path) -> None:
        self.provider = served
        self.url = f"sqlite:///{folder}/store.db"

    @asynccontextmanager
    async def consumer(self, **options: Any) -> AsyncIterator[Consumer]:
        """A consumer that is running; each call is as a new process."""
        built = source.build({"endpoints": [self.provider.url], **options}, "test")
        async with Consumer("test", built, SqlStore(self.url), QUICK) as consumer:
            yield consumer

    async def store(self, stream: str = "all") -> dict[str, Any]:
        """Entity-key to body, as stored."""
        reader = sink.reader(self.url)
        try:
            return {e.key: json.loads(e.body) async for e in reader.entities(stream=stream)}
        finally:
            await reader.close()

    def truth(self, stream: str = "all") -> dict[str, Any]:
        """Entity-key to body, as stated by the provider."""
        stated = self.provider.entities(stream).items()
        return {key: json.loads(body) for key, (_, body) in stated}

    async def equal(self, stream: str = "all") -> None:
        """Wait until both sides are equal; fail with what differs."""
        held: dict[str, Any] = {}
        truth: dict[str, Any] = {}
        for _ in range(int(DEADLINE_S / 0.1)):
            held, truth = await self.store(stream), self.truth(stream)
            if held == truth:
                return
            await asyncio.sleep(0.1)
        differ = {
            key: (held.get(key), truth.get(key))
            for key in held.keys() | truth.keys()
            if held.get(key) != truth.get(key)
        }
        raise AssertionError(f"the store holds and the provider states: {differ}")

    async def read_to_the_end(self, *streams: str) -> None:
        """Wait until the newest record of each of these streams is committed."""
        newest = {name: self.provider.stream(name).log.newest for name in streams}
        wanted = {name: record.token for name, record in newest.items() if record is not None}
        committed: dict[str, str | None] = {}
        reader = sink.reader(self.url)
        try:
            for _ in range(int(DEADLINE_S / 0.1)):
                committed = {one.stream: one.position.token for one in await reader.streams()}
                if wanted.items() <= committed.items():
                    return
                await asyncio.sleep(0.1)
        finally:
            await reader.close()
        raise AssertionError(f"committed up to {committed}, the logs end with {wanted}")

    def attempt(self, consumer: Consumer) -> int:
        """The number of the alignment attempt of the only stream; 0 before its first."""
        streams = consumer.health().streams
        return streams[0].attempt if streams else 0


@asynccontextmanager
async def site(served: Provider, folder: Path) -> AsyncIterator[Site]:
    """Serve the provider while the context is open."""
    async with served:
        yield Site(served, folder)


async def until(condition: Callable[[], bool], what: str) -> None:
    """Wait until a condition holds; fail when it does not in time."""
    for _ in range(int(DEADLINE_S / 0.02)):
        if condition():
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"{what}: not within {DEADLINE_S} s")
