"""connection-address in the forms of all editions: a text (TAPI 2.1.3), a list (2.4 and later)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from typing import Any

import pytest

from instep import Consumer
from instep.errors import AuthenticationError, DiscoveryError, NoStreamError
from instep.testing import MemorySink
from instep_tapi.source import TapiSource
from tests.instep_tapi.hostile_kit import DEADLINE_S, Peer, hostile, source_of
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

    def __init__(self, *addresses: Any, as_text: bool = False) -> None:
        """`as_text`: the only address is stated as 2.1.3 has it."""
        super().__init__("NODE", log=[node("n1", 1)], storage="COMPACTED")
        self.addresses: Any = list(addresses)
        self.as_text = as_text
        self.came: list[str] = []
        self.gone = "/gone"
        self.refuses = False
        self.undeclared = ""

    def streams(self, address: str) -> dict[str, Any]:
        found = super().streams(address)
        (stream,) = found["available-stream"]
        host = address.removeprefix("ws://").removesuffix("/s")
        stream["connection-address"] = [
            one.replace("HOST", host) if isinstance(one, str) else one for one in self.addresses
        ]
        if self.as_text:
            (stream["connection-address"],) = stream["connection-address"]
        found["supported-stream-type"][0].pop(self.undeclared, None)
        return found

    async def serve(self, peer: Peer) -> None:
        if "Upgrade" in peer.headers:
            self.came.append(peer.target.partition("?")[0])
            if self.refuses or peer.target.startswith(self.gone):
                status = "401 Unauthorized" if self.refuses else "404 Not Found"
                await peer.answer(b"", status=status)
            else:
                await self._serve_stream(peer)
            return
        await super().serve(peer)


@asynccontextmanager
async def consuming(source: TapiSource) -> AsyncIterator[MemorySink]:
    """A consumer of the source, aligned, and where it stores."""
    sink = MemorySink()
    async with Consumer("c", source, sink, SETTINGS) as consumer, asyncio.timeout(DEADLINE_S):
        await consumer.aligned()
        yield sink


async def until_stored(sink: MemorySink, key: str) -> None:
    while key not in {entity.key for entity in sink.entities("s").values()}:
        await asyncio.sleep(0.02)


async def follow(provider: ListingProvider, **options: Any) -> list[str]:
    """The keys that a consumer has stored once it is aligned."""
    async with serving(provider, **options) as source, consuming(source) as sink:
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
        [", ws://HOST/s"],
        ["ws://HOST/gone", "ws://HOST/s"],
    ],
    ids=str,
)
async def test_a_list_leads_to_its_first_usable_address(addresses: list[Any]) -> None:
    assert await follow(ListingProvider(*addresses)) == ["n1"]


async def test_a_list_with_a_dead_address_and_a_living_one() -> None:
    with dead_port() as port:
        assert await follow(ListingProvider(f"ws://127.0.0.1:{port}/s", "ws://HOST/s")) == ["n1"]


@pytest.mark.parametrize("text", ["ws://HOST/s", "grpc://HOST, ws://HOST/s", "/gone|ws://HOST/s"])
async def test_one_text_may_have_alternatives(text: str) -> None:
    assert await follow(ListingProvider(text, as_text=True)) == ["n1"]


async def test_an_empty_list_is_no_address() -> None:
    for empty in ([], [""], [None]):
        async with serving(ListingProvider(*empty)) as source:
            with pytest.raises(NoStreamError, match="it has no connection-address"):
                await source.discover()


async def test_the_address_that_worked_is_preferred() -> None:
    provider = ListingProvider("ws://HOST/gone", "ws://HOST/s")
    async with serving(provider) as source, consuming(source) as sink:
        assert provider.came == ["/gone", "/s"]
        provider.cut()
        provider.say(node("n2", 2))
        await until_stored(sink, "n2")
    assert provider.came.count("/gone") == 1


async def test_an_address_that_dies_is_left_for_one_that_failed_before() -> None:
    provider = ListingProvider("ws://HOST/gone", "ws://HOST/s")
    async with serving(provider) as source, consuming(source) as sink:
        provider.gone, provider.came = "/s", []
        provider.cut()
        provider.say(node("n2", 2))
        await until_stored(sink, "n2")
    assert provider.came[:2] == ["/s", "/gone"]


async def test_an_instance_is_left_where_all_of_its_addresses_fail() -> None:
    with dead_port() as port:
        dead = f"ws://127.0.0.1:{port}"
        half = ListingProvider(f"{dead}/1", f"{dead}/2", f"{dead}/3", "ws://HOST/s")
        whole = ListingProvider("ws://HOST/s")
        async with hostile(whole.serve) as other:
            for first, used in ((half, half), (ListingProvider(f"{dead}/1", f"{dead}/2"), whole)):
                whole.came = []
                async with (
                    hostile(first.serve) as url,
                    source_of(
                        url, endpoints=[url, other], fail_over={"leave_after_s": 0}
                    ) as source,
                    consuming(source),
                ):
                    assert used.came == ["/s"]
                    assert half.came == ["/s"]


async def test_a_login_that_is_refused_at_one_address_is_not_tried_at_the_next() -> None:
    provider = ListingProvider("ws://HOST/s", "ws://HOST/t")
    provider.refuses = True
    async with (
        serving(provider) as source,
        Consumer("c", source, MemorySink(), SETTINGS) as consumer,
        asyncio.timeout(DEADLINE_S),
    ):
        with pytest.raises(AuthenticationError):
            await consumer.aligned()
    assert "/t" not in provider.came


async def test_addresses_that_a_setting_would_allow_tell_it() -> None:
    provider = ListingProvider("grpc://elsewhere.example", "ws://elsewhere.example/s")
    async with serving(provider) as source:
        with pytest.raises(DiscoveryError, match="at another host") as raised:
            await source.discover()
    assert 'stream_hosts = ["elsewhere.example"]' in raised.value.hint


@pytest.mark.parametrize(
    ("options", "tapi"), [({}, "2.6"), ({"tapi": "2.1.3"}, "2.1.3"), ({"tapi": "2.6"}, "2.6")]
)
async def test_the_profile_is_stated_or_set(options: dict[str, str], tapi: str) -> None:
    provider = ListingProvider("ws://HOST/s")
    provider.undeclared = "record-content"
    async with serving(provider, **options) as source:
        (stream,) = await source.discover()
    assert stream.details["edition"] == tapi
