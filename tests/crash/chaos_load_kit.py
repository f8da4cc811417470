"""What `tests.crash.chaos` sends: numbered messages of honest senders, and what strangers send."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from contextlib import suppress
from typing import Final

import aiohttp
import nats.errors
from lxml import etree
from nats.aio.client import Client

from tests.crash import messages, soap_source_kit, wsr, wsrm
from tests.crash.messages import IN_FLIGHT, LinkFaults

__all__ = ["BrokerLink", "DidcommLoad", "Load", "NatsLoad", "WsrLoad", "WsrmLoad", "attack"]

LAST: Final = 40
"""So many messages has a sequence; then a sender begins another one."""
SUBJECTS: Final = "chaos"
FAULTS: Final = LinkFaults(loss=0.02, duplication=0.05)
_DEEP: Final = "<a>" * 5_000
HOSTILE: Final = (
    b"",
    b"{",
    b'{"id":"1","type":"https://example.org/crash/1.0/say","sender_order":',
    b'{"id":1,"type":[],"from":{},"thid":7,"sender_order":"x","body":0}',
    b"[" * 50_000,
    b'{"a":' * 5_000,
    b"\xff\xfe\x00\x01",
    b"<a",
    b"<s:Envelope xmlns:s='http://www.w3.org/2003/05/soap-envelope'><s:Header/>",
    b"<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>",
    f"<s:Envelope xmlns:s='http://www.w3.org/2003/05/soap-envelope'>{_DEEP}".encode(),
    b"<s:Envelope xmlns:s='http://schemas.xmlsoap.org/soap/envelope/'><s:Body/></s:Envelope>",
    b"<a>&#0;</a>",
)
MEDIA: Final = ("application/didcomm-plain+json", "application/soap+xml", "text/xml", "a/b")


class GatedLink:
    """The way to a listener; closed while the process is down, so that all begin at once."""

    def __init__(self, url: str, session: aiohttp.ClientSession, gate: asyncio.Event) -> None:
        self.url = url
        self._session = session
        self._gate = gate
        self._last: tuple[bytes, str] | None = None

    async def repeat(self) -> None:
        """Send the last message that was accepted once more, though the gate is closed: all
        listeners read what they have stored at the same moment.
        """
        if self._last is not None:
            await self._post(*self._last)

    async def post(self, raw: bytes, media: str = "application/soap+xml") -> tuple[int, bytes]:
        """See `tests.crash.soap_source_kit.Link`."""
        await self._gate.wait()
        status, answer = await self._post(raw, media)
        if status in (200, 202):
            self._last = raw, media
        return status, answer

    async def _post(self, raw: bytes, media: str) -> tuple[int, bytes]:
        headers = {"Content-Type": media}
        try:
            async with self._session.post(self.url, data=raw, headers=headers) as response:
                return response.status, await response.read()
        except (aiohttp.ClientError, OSError, TimeoutError):
            return 0, b""


class BrokerLink:
    """The way to a broker, which takes messages while nobody receives."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._last: tuple[str, bytes] | None = None

    async def repeat(self) -> None:
        """Publish the last message once more."""
        if self._last is not None:
            await self._publish(*self._last)

    async def publish(self, subject: str, body: bytes) -> None:
        """Publish a message until the stream has told that it has it."""
        while not await self._publish(subject, body):
            await asyncio.sleep(0.1)
        self._last = subject, body

    async def _publish(self, subject: str, body: bytes) -> bool:
        client = Client()
        with suppress(nats.errors.Error, OSError):
            await client.connect(self.url, allow_reconnect=False, error_cb=_ignore)
            try:
                await client.jetstream(timeout=5).publish(subject, body)
            finally:
                await client.close()
            return True
        return False


async def _ignore(_: Exception) -> None:
    pass


class Load:
    """Senders to one listener, until they are told that it is enough."""

    link: GatedLink | BrokerLink

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self.enough = False
        self._seed = seed
        self._place = 0

    async def run(self, at_once: int = 2) -> None:
        """Send, one sequence after the other."""
        await asyncio.gather(*(self._loop() for _ in range(at_once)))

    async def _loop(self) -> None:
        while not self.enough:
            self._place += 1
            await self._sequence(self._place)

    async def _sequence(self, place: int) -> None:
        raise NotImplementedError

    @property
    def expected(self) -> int:
        """How many messages must have been delivered."""
        raise NotImplementedError

    def read(self, body: bytes) -> tuple[int, int] | None:
        """The sender and the number in a delivered body; None: it is of a stranger."""
        found = etree.fromstring(body)
        if found.tag != "{urn:crash}m":
            return None
        return int(found.get("sender", "")), int(found.get("number", ""))

    def faults(self, found: list[tuple[int, int]]) -> list[str]:
        """What is wrong with what was delivered, in the order of delivery."""
        raise NotImplementedError


class WsrmLoad(Load):
    """Sequences of WS-ReliableMessaging."""

    def __init__(self, name: str, link: GatedLink, seed: int) -> None:
        super().__init__(name, seed)
        self.link: GatedLink = link
        self._sources: list[wsrm.Source] = []
        self._report = wsrm.Report()

    async def _sequence(self, place: int) -> None:
        source = wsrm.Source(place, self.link, FAULTS, self._seed, self._report)
        await source.run(LAST)
        self._sources.append(source)

    @property
    def expected(self) -> int:
        return sum(len(one.acknowledged - one.filled) for one in self._sources)

    def faults(self, found: list[tuple[int, int]]) -> list[str]:
        report = wsrm.Report(broken_promises=self._report.broken_promises)
        wsrm.compare(found, self._sources, report)
        return _listed(report, report.broken_promises)


class WsrLoad(Load):
    """Groups of WS-Reliability."""

    def __init__(self, name: str, link: GatedLink, seed: int) -> None:
        super().__init__(name, seed)
        self.link: GatedLink = link
        self._sources: list[wsr.Source] = []
        self._report = soap_source_kit.Report()

    async def _sequence(self, place: int) -> None:
        source = wsr.Source(place, self.link, FAULTS, self._seed, self._report)
        await source.run(LAST)
        self._sources.append(source)

    @property
    def expected(self) -> int:
        return sum(len(one.acknowledged) for one in self._sources)

    def faults(self, found: list[tuple[int, int]]) -> list[str]:
        report = soap_source_kit.Report(broken_promises=self._report.broken_promises)
        wsr.compare(found, self._sources, report)
        return _listed(report, report.broken_promises)


class DidcommLoad(Load):
    """Threads of DIDComm."""

    def __init__(self, name: str, link: GatedLink, seed: int) -> None:
        super().__init__(name, seed)
        self.link: GatedLink = link
        self._report = messages.Report()
        self._talk = _Talk(link, seed, self._report)
        self._done = 0

    async def _sequence(self, place: int) -> None:
        await self._talk.thread(place, LAST)
        self._done += 1

    @property
    def expected(self) -> int:
        return self._done * LAST

    def read(self, body: bytes) -> tuple[int, int] | None:
        content = json.loads(body)["body"]
        return (content["sender"], content["number"]) if "sender" in content else None

    def faults(self, found: list[tuple[int, int]]) -> list[str]:
        report = messages.Report()
        # Numbered from 1 here, from 0 there.
        messages.compare([(place - 1, n) for place, n in found], self._place, LAST, report)
        return _listed(report, [])


class NatsLoad(Load):
    """Subjects of a stream, the numbers of each shuffled, some twice."""

    def __init__(self, name: str, link: BrokerLink, seed: int) -> None:
        super().__init__(name, seed)
        self.link: BrokerLink = link
        self._done = 0

    async def _sequence(self, place: int) -> None:
        rng = random.Random(self._seed * 1_000 + place)
        for number in sorted(range(1, LAST + 1), key=lambda number: number + rng.uniform(0, 8)):
            body = json.dumps({"sender": place, "number": number}).encode()
            for _ in range(2 if rng.random() < FAULTS.duplication else 1):
                await self.link.publish(f"{SUBJECTS}.{place}", body)
            await asyncio.sleep(rng.uniform(0, 0.05))
        self._done += 1

    @property
    def expected(self) -> int:
        return self._done * LAST

    def read(self, body: bytes) -> tuple[int, int]:
        content = json.loads(body)
        return content["sender"], content["number"]

    def faults(self, found: list[tuple[int, int]]) -> list[str]:
        report = messages.Report()
        messages.compare([(place - 1, n) for place, n in found], self._place, LAST, report)
        return _listed(report, [])


class _Talk(messages.Senders):
    def __init__(self, link: GatedLink, seed: int, report: messages.Report) -> None:
        super().__init__(link.url, link._session, FAULTS, seed, report)
        self._link = link

    async def thread(self, sender: int, count: int) -> None:
        await self._thread(sender, count)

    async def _transmit(self, raw: bytes) -> int:
        status, _ = await self._link.post(raw, MEDIA[0])
        self._report.answers[status] += 1
        return status


def _listed(report: messages.Report, broken: list[str]) -> list[str]:
    return [
        *(f"lost {one}" for one in report.missing),
        *(f"doubled {one}" for one in report.doubled),
        *(f"out of order {one}" for one in report.disordered),
        *broken,
    ]


async def attack(ports: list[int], rng: random.Random, answers: Counter[str]) -> None:
    """Send what is no message to these ports, until cancelled: whole, cut, or a half request."""
    held: list[asyncio.StreamWriter] = []
    try:
        while True:
            await asyncio.sleep(0.03)
            with suppress(OSError, TimeoutError):
                await _attack_once(rng.choice(ports), rng, answers, held)
            while len(held) > IN_FLIGHT:
                held.pop(0).close()
    finally:
        for writer in held:
            writer.close()


async def _attack_once(
    port: int, rng: random.Random, answers: Counter[str], held: list[asyncio.StreamWriter]
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = rng.choice(HOSTILE)
    head = (
        f"POST /{rng.choice(('in', 'x'))} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
        f"Content-Type: {rng.choice(MEDIA)}\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()
    request = head + body
    if rng.random() < 0.3:
        request = request[: rng.randrange(1, len(request))]
        writer.write(request)
        answers["half"] += 1
        if rng.random() < 0.5:
            held.append(writer)
        else:
            writer.transport.abort()
        return
    writer.write(request)
    async with asyncio.timeout(2):
        line = await reader.readline()
    answers[line.decode(errors="replace").strip()[9:12] or "closed"] += 1
    writer.close()
