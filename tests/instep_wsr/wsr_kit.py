"""A receiver over the real store, raw envelopes, a clock that can be moved, and a server for
callbacks. The envelopes are written by hand from the specification.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import aiohttp
from aiohttp import web
from lxml import etree
from lxml.etree import _Element

from instep import Handler, IntakeSettings, StoredMessage
from instep.conformance import Event
from instep.runtime.receiver import Receiver
from instep.runtime.retry import Environment
from instep.runtime.settings import ConsumerSettings
from instep_http import ClientSettings, GuardedClient
from instep_sql import SqlStore
from instep_wsr import WsrListener, read_options
from instep_wsr.testing import WsrSource

S11 = "http://schemas.xmlsoap.org/soap/envelope/"
S12 = "http://www.w3.org/2003/05/soap-envelope"
WSR = "http://docs.oasis-open.org/wsrm/2004/06/ws-reliability-1.1.xsd"
GROUP = "mid:20261122.1@sender.example"
ACK, ELIMINATE, ORDER = "<w:AckRequested/>", "<w:DuplicateElimination/>", "<w:MessageOrder/>"
ORDERED = ACK + ELIMINATE + ORDER
UNORDERED = ACK + ELIMINATE


class Clock:
    """The time, which a test can move on."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def now(self) -> float:
        return time.time() + self.ahead_s

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead_s

    def environment(self) -> Environment:
        return Environment(now=self.now, monotonic=self.monotonic)

    def at(self, seconds: float) -> str:
        """An xs:dateTime, this many seconds from now."""
        return stamp(self.now() + seconds)


def stamp(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat().replace("+00:00", "Z")


class Answer:
    """The response of a receiver, or a callback of it."""

    def __init__(self, status: int, raw: bytes) -> None:
        self.status = status
        self.raw = raw
        self.root: _Element | None = etree.fromstring(raw) if raw else None

    def __repr__(self) -> str:
        return f"<Answer {self.status} {self.raw.decode()}>"

    def all(self, local: str) -> list[_Element]:
        """Every element of this name, in whatever namespace."""
        return [] if self.root is None else list(self.root.iter(f"{{*}}{local}", local))

    @property
    def replies(self) -> list[tuple[int, int, str]]:
        """Every reply: from, to, and the local name of its fault; empty: an acknowledgement.
        NonSequenceReply is `(-1, -1, fault)`.
        """
        found = []
        for one in [*self.all("ReplyRange"), *self.all("NonSequenceReply")]:
            prefix, _, code = one.get("fault", "").rpartition(":")
            assert not code or one.nsmap[prefix] == WSR
            found.append((int(one.get("from", "-1")), int(one.get("to", "-1")), code))
        return found

    @property
    def acknowledged(self) -> list[tuple[int, int]]:
        return [(low, high) for low, high, fault in self.replies if not fault]

    @property
    def faults(self) -> list[tuple[int, int, str]]:
        return [one for one in self.replies if one[2]]

    @property
    def groups(self) -> list[str]:
        found = [*self.all("SequenceReplies"), *self.all("NonSequenceReply")]
        return [one.get("groupId", "") for one in found]

    @property
    def soap_fault(self) -> str:
        """The local name of the most specific code of a SOAP fault; empty: it is none."""
        texts = [one.text or "" for one in [*self.all("faultcode"), *self.all("Value")]]
        return texts[-1].rpartition(":")[2] if texts else ""


def envelope(headers: str = "", body: str = "", *, soap: str = S11) -> bytes:
    return (
        f'<s:Envelope xmlns:s="{soap}" xmlns:w="{WSR}"><s:Header>{headers}</s:Header>'
        f"<s:Body>{body}</s:Body></s:Envelope>"
    ).encode()


def body(number: object) -> str:
    return f"<n:notify xmlns:n='urn:peer'><index>{number}</index></n:notify>"


def request(
    number: object = None,
    *,
    group: str = GROUP,
    expires: str = "",
    pattern: str = "Response",
    reply_to: str = "",
    features: str = ORDERED,
    last: str = "",
    more: str = "",
) -> str:
    """A Request. `number` None: without SequenceNum; `more`: attributes of SequenceNum."""
    stated = f' last="{last}"' if last else ""
    sequence = "" if number is None else f'<w:SequenceNum number="{number}"{stated} {more}/>'
    address = f"<w:ReplyTo><w:BareURI>{reply_to}</w:BareURI></w:ReplyTo>" if reply_to else ""
    return (
        f'<w:Request s:mustUnderstand="1"><w:MessageId groupId="{group}">{sequence}</w:MessageId>'
        f"<w:ExpiryTime>{expires or stamp(time.time() + 3600)}</w:ExpiryTime>"
        f"<w:ReplyPattern><w:Value>{pattern}</w:Value>{address}</w:ReplyPattern>"
        f"{features}</w:Request>"
    )


def poll(*ranges: tuple[object, object], group: str = GROUP, reply_to: str = "") -> str:
    parts = "".join(f'<w:SequenceNumRange from="{low}" to="{high}"/>' for low, high in ranges)
    address = f"<w:ReplyTo><w:BareURI>{reply_to}</w:BareURI></w:ReplyTo>" if reply_to else ""
    return (
        f'<w:PollRequest s:mustUnderstand="1"><w:RefToMessageIds groupId="{group}">{parts}'
        f"</w:RefToMessageIds>{address}</w:PollRequest>"
    )


class Site:
    """A running receiver, and ways to speak to it and to look at what it delivered."""

    def __init__(
        self, receiver: Receiver, listener: WsrListener, store: SqlStore, clock: Clock
    ) -> None:
        self.receiver, self.listener, self.store, self.clock = receiver, listener, store, clock
        self.client = GuardedClient(
            ClientSettings(total_timeout_s=30.0), ssl.create_default_context()
        )

    @property
    def url(self) -> str:
        return self.listener.address

    def source(self, **changes: Any) -> WsrSource:
        return WsrSource(self.url, self.client, **changes)

    async def post(self, raw: bytes, content_type: str = "text/xml") -> Answer:
        async with (
            aiohttp.ClientSession() as session,
            session.post(self.url, data=raw, headers={"Content-Type": content_type}) as answer,
        ):
            return Answer(answer.status, await answer.read())

    async def say(self, headers: str = "", content: str = "", *, soap: str = S11) -> Answer:
        media = "text/xml" if soap == S11 else "application/soap+xml"
        return await self.post(envelope(headers, content, soap=soap), media)

    async def send(self, number: object = None, **changes: Any) -> Answer:
        """Send a message of an ordered group."""
        return await self.say(request(number, **changes), body(number))

    async def delivered(self, group: str | None = None) -> list[StoredMessage]:
        return [one async for one in self.store.reader.messages(stream=group)]

    async def numbers(self, group: str | None = GROUP) -> list[int]:
        return [one.number for one in await self.delivered(group)]


@asynccontextmanager
async def running(
    url: str = "sqlite://",
    *,
    handler: Handler | None = None,
    clock: Clock | None = None,
    intake: dict[str, Any] | None = None,
    fast_path: bool = True,
    recorder: Callable[[Event], None] | None = None,
    **options: Any,
) -> AsyncIterator[Site]:
    """A receiver on a free port of loopback."""
    clock = clock or Clock()
    environment = clock.environment()
    given = {"listen": "http://127.0.0.1:0/rm", **options}
    listener = WsrListener(
        read_options(given, "test"), environment=environment, fast_path=fast_path
    )
    if recorder is not None:
        listener.record(recorder)
    store = SqlStore(url)
    settings = ConsumerSettings(
        intake=IntakeSettings(poll_s=0.05, handler_retry_initial_s=0.01, **(intake or {}))
    )
    async with Receiver(
        "wsr", listener, store, settings, handler=handler, environment=environment
    ) as receiver:
        await receiver.aligned(10)
        site = Site(receiver, listener, store, clock)
        try:
            yield site
        finally:
            await site.client.close()


class CallbackServer:
    """The address of a sender, which callbacks go to."""

    def __init__(self) -> None:
        self.got: list[Answer] = []
        self.failing = False
        self.url = ""

    @property
    def origin(self) -> str:
        return self.url.removesuffix("/callback")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[CallbackServer]:
        app = web.Application()
        app.router.add_post("/callback", self._handle)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/callback"
        try:
            yield self
        finally:
            await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.Response:
        if self.failing:
            return web.Response(status=503)
        self.got.append(Answer(200, await request.read()))
        return web.Response(status=202)


async def until(done: Callable[[], Awaitable[Any]], timeout_s: float = 15.0) -> Any:
    """Poll an async question until its answer is true."""
    async with asyncio.timeout(timeout_s):
        while not (found := await done()):
            await asyncio.sleep(0.01)
        return found
