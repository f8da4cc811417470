"""connection-address in the forms of all editions: a text (TAPI 2.1.3), a list (2.4 and later)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from instep import Consumer
from instep.errors import NoStreamError
from instep.testing import MemorySink
from tests.instep_tapi.hostile_kit import DEADLINE_S, Peer
from tests.instep_tapi.small_provider_kit import SETTINGS, SmallProvider, node, serving

pytestmark = pytest.mark.asyncio


@contextmanager
def dead_port() -> Iterator[int]:
    """A port of 127.0.0.1 that refuses connections while this is open."""
    with closing(socket.socket()) as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


class ListingProvider(SmallProvider):
    """States these addresses, with its own host and port for `HOST`; counts who comes."""

    def __init__(self, *addresses: Any, **declared: Any) -> None:
        super().__init__("NODE", log=[node("n1", 1)], storage="COMPACTED")
        self.addresses: Any = list(addresses)
        self.came: list[str] = []
        self._stream = declared

    def streams(self, address: str) -> dict[str, Any]:
        found = super().streams(address)
        (stream,) = found["available-stream"]
        host = address.removeprefix("ws://").removesuffix("/s")
        stream["connection-address"] = [
            one.replace("HOST", host) if isinstance(one, str) else one for one in self.addresses
        ]
        stream |= self._stream
        return found

    async def serve(self, peer: Peer) -> None:
        if "Upgrade" in peer.headers:
            self.came.append(peer.target.partition("?")[0])
            if peer.target.startswith("/gone"):
                await peer.answer(b"", status="404 Not Found")
                return
        await super().serve(peer)


async def follow(provider: ListingProvider, **options: Any) -> list[str]:
    """The keys that a consumer has stored once it is aligned."""
    sink = MemorySink()
    async with (
        serving(provider, **options) as source,
        Consumer("c", source, sink, SETTINGS) as consumer,
        asyncio.timeout(DEADLINE_S),
    ):
        await consumer.aligned()
    return sorted(entity.key for entity in sink.entities("s").values())


@pytest.mark.parametrize(
    "addresses",
    [
        ["ws://HOST/s"],
        ["/s"],
        [None, 7, {"a": "b"}, [], "", "ws://HOST/s"],
        ["grpc://HOST", "ws://HOST/s"],
        ["ws://elsewhere.example/s", "ws://HOST/s"],
        ["wss://user:secret@HOST/s", "ws://HOST/s"],
        ["grpc://HOST, ws://HOST/s"],
        ["ws://HOST/gone", "ws://HOST/s"],
    ],
    ids=str,
)
async def test_a_list_leads_to_its_first_usable_address(addresses: list[Any]) -> None:
    assert await follow(ListingProvider(*addresses)) == ["n1"]


async def test_a_list_with_a_dead_address_and_a_living_one() -> None:
    with dead_port() as port:
        assert await follow(ListingProvider(f"ws://127.0.0.1:{port}/s", "ws://HOST/s")) == ["n1"]


async def test_an_empty_list_is_no_address() -> None:
    for empty in ([], [""], [None]):
        async with serving(ListingProvider(*empty)) as source:
            with pytest.raises(NoStreamError, match="it has no connection-address"):
                await source.discover()


async def test_the_address_that_worked_is_preferred() -> None:
    provider = ListingProvider("ws://HOST/gone", "ws://HOST/s")
    sink = MemorySink()
    async with (
        serving(provider) as source,
        Consumer("c", source, sink, SETTINGS) as consumer,
        asyncio.timeout(DEADLINE_S),
    ):
        await consumer.aligned()
        assert provider.came[:2] == ["/gone", "/s"]
        provider.cut()
        provider.say(node("n2", 2))
        while "n2" not in {entity.key for entity in sink.entities("s").values()}:
            await asyncio.sleep(0.02)
    assert provider.came.count("/gone") == 1
