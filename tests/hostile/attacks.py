"""What strangers do to a listener. Each attack is written from the protocols, with nothing of what
it attacks, and goes on until it is cancelled.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import random
import time
from collections import Counter
from collections.abc import Coroutine
from typing import Any, Final, Protocol, Self

import aiohttp
from yarl import URL

__all__ = ["ATTACKS", "BID", "Attack", "Stranger", "threads"]

_AT_ONCE: Final = 50
_HEAD_BYTES: Final = 150
_SMALL_BYTES: Final = 64 * 1024
BID: Final = "https://didcomm.org/auction/1.0/bid"
BAD_ENDPOINTS: Final = (
    "http://[",
    "http://h:99999999/",
    "http://..a/",
    f"http://{'a' * 300}/",
    "http://127.0.0.1:1/",
    "http://[::ffff:127.0.0.1]:1/admin?delete=all",
)


class _Silent(asyncio.Protocol):
    """One side of a connection that reads nothing and says nothing, until the other side ends it.
    `held` has all that are open.
    """

    def __init__(self, held: set[asyncio.BaseTransport]) -> None:
        self._held = held

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._held.add(transport)

    def connection_lost(self, _: Exception | None) -> None:
        self._held.discard(self._transport)


class Stranger:
    """The means of all attacks: the address, a session, and a tarpit that answers nobody."""

    def __init__(self, url: str, rm: str, seed: int, per_s: float) -> None:
        self.url = URL(url)
        self.rm = URL(rm)
        self.rng = random.Random(seed)
        self.pause_s = 1.0 / per_s
        self.answers: Counter[str] = Counter()
        """Attack and status → how often it was answered so."""
        self.sent_bytes = 0
        """Of bombs, and of requests that are small: beside a large one, what they add to the log
        would not show.
        """
        self.tarpit = ""
        self._session: aiohttp.ClientSession | None = None
        self._held: set[asyncio.BaseTransport] = set()

    async def __aenter__(self) -> Self:
        timeout = aiohttp.ClientTimeout(total=30)
        connector = aiohttp.TCPConnector(limit=128, force_close=True)
        self._session = aiohttp.ClientSession(connector=connector, timeout=timeout)

        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Silent(self._held), "127.0.0.1", 0)
        self.tarpit = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._session is not None
        await self._session.close()
        self._server.close()
        for transport in self._held:
            assert isinstance(transport, asyncio.Transport)
            transport.abort()
        await asyncio.sleep(0)

    async def post(self, attack: str, body: bytes) -> None:
        assert self._session is not None
        if len(body) < _SMALL_BYTES:
            self.sent_bytes += _HEAD_BYTES + len(body)
        try:
            async with self._session.post(self.url, data=body) as response:
                await response.read()
                self.answers[f"{attack} {response.status}"] += 1
        except (aiohttp.ClientError, OSError, TimeoutError):
            self.answers[f"{attack} lost"] += 1
        await asyncio.sleep(self.pause_s)

    async def connect(self) -> asyncio.WriteTransport | None:
        loop = asyncio.get_running_loop()
        try:
            transport, _ = await loop.create_connection(
                lambda: _Silent(self._held), self.url.host or "", self.url.port or 80
            )
        except OSError:
            return None
        return transport


def bid(sender: str, thid: str, order: int, **more: Any) -> bytes:
    """A message of a sequenced protocol."""
    message = {
        "id": f"{order}-{random.getrandbits(64):x}",
        "type": BID,
        "from": sender,
        "thid": thid,
        "sender_order": order,
        "body": {},
        **more,
    }
    return json.dumps(message).encode()


def peer_did(endpoint: str, number: int) -> str:
    """A did:peer:2 that states an endpoint; anybody can make any number of them."""
    service = json.dumps({"t": "dm", "s": {"uri": f"{endpoint}#{number}"}}).encode()
    return f"did:peer:2.S{base64.urlsafe_b64encode(service).decode().rstrip('=')}"


async def endpoints(at: Stranger) -> None:
    """Endpoints that are none, are private, or never answer, with gaps and wishes for acks."""
    number = 0
    while True:
        number += 1
        where = at.tarpit if number % 2 else at.rng.choice(BAD_ENDPOINTS)
        did = peer_did(where, number)
        await at.post("endpoints", bid(did, f"e{number}", 3, please_ack=[""]))


async def did_bombs(at: Stranger) -> None:
    """Signed messages whose key id is a DID of many keys, or a long one."""
    number = 0
    while True:
        number += 1
        bomb = "did:peer:2" + ".Vz6Mk2" * at.rng.choice((1_160, 41, 20))
        long = "did:key:z" + "6" * at.rng.choice((2_030, 8_100))
        did = at.rng.choice((f"{bomb}.Vz6Mk{number}".replace("0", "a"), long))
        encoded = base64.urlsafe_b64encode(b'{"alg":"EdDSA"}').decode().rstrip("=")
        signature = {"protected": encoded, "signature": "AA", "header": {"kid": f"{did}#key-1"}}
        await at.post(
            "did-bombs", json.dumps({"payload": "e30", "signatures": [signature]}).encode()
        )


async def threads(at: Stranger) -> None:
    """Threads without end: 50,000 in ten minutes at the usual rate, which is caught up with."""
    began_s = time.monotonic()
    for first in itertools.count(0, _AT_ONCE):
        numbers = range(first, first + _AT_ONCE)
        await asyncio.gather(
            *(at.post("threads", bid(f"did:ex:{n % 500}", f"t{n}", 1)) for n in numbers)
        )
        due_s = began_s + (first + _AT_ONCE) * at.pause_s
        await asyncio.sleep(max(0.0, due_s - time.monotonic()))


async def gaps(at: Stranger) -> None:
    """Threads with a thousand gaps each, and jumps. One has failed after 20 s."""
    order = 0
    while True:
        order += 2
        number = at.rng.choice((order, order, 2**62, 2_000_000))
        await at.post("gaps", bid("did:ex:gaps", f"gaps{order // 2_000}", number))


async def big_bodies(at: Stranger) -> None:
    """Messages of 1 MB that wait behind gaps, each in a scope of its own."""
    number = 0
    while True:
        number += 1
        body = bid(f"did:ex:{number}", f"b{number}", 2, body={"x": "x" * 1_000_000})
        await at.post("big-bodies", body)
        await asyncio.sleep(10 * at.pause_s)


async def slow_heads(at: Stranger) -> None:
    """Heads and bodies that come byte by byte."""
    while True:
        transport = await at.connect()
        if transport is not None:
            head = f"POST {at.url.path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n"
            transport.write(head.encode() + at.rng.choice((b"", b"\r\n12")))
            at.answers["slow-heads sent"] += 1
        await asyncio.sleep(at.pause_s)


async def connections(at: Stranger) -> None:
    """2,000 connections that say nothing, opened anew as they are closed."""
    held: list[asyncio.BaseTransport] = []
    while True:
        held = [transport for transport in held if not transport.is_closing()]
        for _ in range(min(50, 2_000 - len(held))):
            transport = await at.connect()
            if transport is not None:
                held.append(transport)
        at.answers["connections held"] = max(at.answers["connections held"], len(held))
        await asyncio.sleep(0.1)


async def nonsense(at: Stranger) -> None:
    """Bytes that are no message, texts that a terminal would obey, other media types."""
    while True:
        text = at.rng.choice(
            (
                b"\x1b[2J\x1b]0;pwn\x07",
                b"[" * 100_000,
                b'{"id":"1","type":"x","body":{}',
                json.dumps({"typ": "\x1b[31m", "id": "a b", "type": "\u202e"}).encode(),
                at.rng.randbytes(1_000),
            )
        )
        await at.post("nonsense", text)


class Attack(Protocol):
    """Goes on until it is cancelled."""

    __name__: str

    def __call__(self, at: Stranger, /) -> Coroutine[Any, Any, None]: ...


ATTACKS: Final[tuple[Attack, ...]] = (
    endpoints,
    did_bombs,
    threads,
    gaps,
    big_bodies,
    slow_heads,
    connections,
    nonsense,
)
"""All of them, at the same time."""
