"""The listeners behind a relay, each with senders of its protocol that are written by hand."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import aiohttp
from lxml import etree

from instep import ConsumerState, Receiver
from instep.testing.relay import Relay, Rule
from instep_didcomm import DidcommListener
from instep_didcomm import read_options as read_didcomm
from instep_sql import SqlStore
from instep_wsr import WsrListener
from instep_wsr import read_options as read_wsr
from instep_wsrm import WsrmListener
from instep_wsrm import read_options as read_wsrm
from tests.crash.wsr import WSR
from tests.crash.wsrm import RM, WSA, numbers_of
from tests.wire.outcome import GO_ON_S, PLAY_S, Outcome, Play

__all__ = ["LISTENERS", "didcomm", "listen", "wsr", "wsrm"]

PROTOCOL: Final = "https://example.org/wire/1.0"
SENDERS: Final = 3
LEAST: Final = 12
"""Messages of each sender."""
ACKNOWLEDGED_S: Final = 25.0
SOAP: Final = "http://schemas.xmlsoap.org/soap/envelope/"
WORD: Final = "Größe"
PATIENT: Final = {"gap_deadline_s": 3600.0}
"""A relay that loses for long is not what makes a sequence fail here."""
LISTENERS: Final[dict[str, Callable[[], Any]]] = {
    "didcomm": lambda: DidcommListener(
        read_didcomm(
            {
                "listen": "http://127.0.0.1:0/in",
                "protocols": [{"type": f"{PROTOCOL}/*", "sequenced": True}],
                "sequence": PATIENT,
            },
            "wire",
        )
    ),
    "wsrm": lambda: WsrmListener(
        read_wsrm({"listen": "http://127.0.0.1:0/in", "sequence": PATIENT}, "wire")
    ),
    "wsr": lambda: WsrListener(read_wsr({"listen": "http://127.0.0.1:0/in"}, "wire")),
}


class Sender:
    """Sends numbered messages, each until it is acknowledged."""

    first = 1
    media = "text/xml; charset=utf-8"

    def __init__(self, place: int, url: str, session: aiohttp.ClientSession) -> None:
        self.place = place
        self.acknowledged: set[int] = set()
        self.answers: Counter[str] = Counter()
        self._url = url
        self._session = session

    async def begin(self) -> None:
        """Before the first message."""

    async def end(self) -> None:
        """After the last message."""

    async def send(self, number: int) -> None:
        """Send a message once, and note what is acknowledged."""
        raise NotImplementedError

    async def post(self, raw: bytes) -> tuple[int, bytes]:
        """The status and the body; status 0: no answer."""
        try:
            async with self._session.post(
                self._url, data=raw, headers={"Content-Type": self.media}
            ) as answer:
                status, body = answer.status, await answer.read()
        except (aiohttp.ClientError, OSError) as error:
            status, body = 0, type(error).__name__.encode()
        if status not in (200, 202):
            said = " ".join(etree_text(body).split())[:120]
            self.answers[f"{status or 'no answer'} {said}".strip()] += 1
            await asyncio.sleep(0.05)
        return status, body

    async def run(self, enough: Callable[[], bool]) -> None:
        """Send two at a time, at least `LEAST`, until it is enough; each until acknowledged."""
        await self.begin()
        number = self.first
        while number < self.first + LEAST or not enough():
            pair = range(number, number + 2)
            await asyncio.gather(*(self._until_acknowledged(one) for one in pair))
            number += 2
            await asyncio.sleep(0.01)

    async def _until_acknowledged(self, number: int) -> None:
        while number not in self.acknowledged:
            await self.send(number)


def etree_text(body: bytes) -> str:
    """The words of an answer."""
    if body[:1] == b"<":
        return " ".join(map(str, etree.fromstring(body, etree.HTMLParser()).itertext()))
    return body.decode(errors="replace")


class DidcommSender(Sender):
    media = "application/didcomm-plain+json"
    sent_count = 0

    async def send(self, number: int) -> None:
        content = {
            "id": f"{self.place}-{number}",
            "type": f"{PROTOCOL}/say",
            "from": f"did:example:{self.place}",
            "thid": f"thread-{self.place}",
            "sender_order": number,
            "body": {"sender": self.place, "number": number, "word": WORD},
        }
        status, _ = await self.post(json.dumps(content, ensure_ascii=False).encode())
        if status == 202:
            self.acknowledged.add(number)


class SoapSender(Sender):
    async def envelope(self, headers: str, body: str = "") -> etree._Element | None:
        """Post an envelope; None: no good answer came."""
        status, answer = await self.post(
            f'<?xml version="1.0"?>\n<s:Envelope xmlns:s="{SOAP}" xmlns:a="{WSA}"'
            f' xmlns:r="{RM["1.1"]}" xmlns:w="{WSR}"><s:Header>{headers}</s:Header>'
            f"<s:Body>{body}</s:Body></s:Envelope>".encode()
        )
        return etree.fromstring(answer) if status == 200 else None

    def message(self, number: int) -> str:
        return f'<m xmlns="urn:wire" sender="{self.place}" number="{number}" word="{WORD}"/>'


class WsrmSender(SoapSender):
    name = ""

    async def begin(self) -> None:
        while not self.name:
            acks = f"<r:AcksTo><a:Address>{WSA}/anonymous</a:Address></r:AcksTo>"
            action = (
                "<a:Action>http://docs.oasis-open.org/ws-rx/wsrm/200702/CreateSequence</a:Action>"
            )
            root = await self.envelope(action, f"<r:CreateSequence>{acks}</r:CreateSequence>")
            if root is not None:
                self.name = root.findtext(f".//{{{RM['1.1']}}}Identifier") or ""

    async def send(self, number: int) -> None:
        root = await self.envelope(
            f"<a:Action>urn:wire</a:Action><a:MessageID>urn:wire:{self.place}:{number}</a:MessageID>"
            f"<r:Sequence><r:Identifier>{self.name}</r:Identifier>"
            f"<r:MessageNumber>{number}</r:MessageNumber></r:Sequence>",
            self.message(number),
        )
        if root is not None:
            found = root.find(f".//{{{RM['1.1']}}}SequenceAcknowledgement")
            self.acknowledged |= numbers_of(found)


class WsrSender(SoapSender):
    first = 0

    async def send(self, number: int) -> None:
        until = (datetime.now(UTC) + timedelta(days=1)).replace(microsecond=0).isoformat()
        self.expires = getattr(self, "expires", until)
        root = await self.envelope(
            f'<w:Request s:mustUnderstand="1"><w:MessageId groupId="mid:{self.place}@wire">'
            f'<w:SequenceNum number="{number}"/></w:MessageId>'
            f"<w:ExpiryTime>{self.expires}</w:ExpiryTime>"
            "<w:ReplyPattern><w:Value>Response</w:Value></w:ReplyPattern>"
            "<w:AckRequested/><w:DuplicateElimination/><w:MessageOrder/></w:Request>",
            self.message(number),
        )
        for one in root.iter(f"{{{WSR}}}ReplyRange") if root is not None else ():
            if not one.get("fault"):
                low, high = int(one.get("from", "")), int(one.get("to", ""))
                self.acknowledged |= set(range(low, high + 1))


SENDERS_OF: Final[dict[str, type[Sender]]] = {
    "didcomm": DidcommSender,
    "wsrm": WsrmSender,
    "wsr": WsrSender,
}


async def didcomm(play: Play, seed: int, folder: Path) -> Outcome:
    return await _run("didcomm", play, seed, folder)


async def wsrm(play: Play, seed: int, folder: Path) -> Outcome:
    return await _run("wsrm", play, seed, folder)


async def wsr(play: Play, seed: int, folder: Path) -> Outcome:
    return await _run("wsr", play, seed, folder)


async def _run(kind: str, play: Play, seed: int, folder: Path) -> Outcome:
    file = folder / "store.db"
    async with (
        Receiver("wire", LISTENERS[kind](), SqlStore(f"sqlite:///{file}")) as receiver,
        Relay("", [play.make()], seed=seed) as relay,
    ):
        await receiver.aligned(10.0)
        relay.upstream = receiver.address.removeprefix("http://").partition("/")[0]
        rule = relay.rules[0]
        url = f"http://{relay.address}/in"
        return await listen(kind, play, rule, relay, receiver, url, lambda: delivered(file))


async def listen(
    kind: str,
    play: Play,
    rule: Rule,
    relay: Relay,
    receiver: Receiver,
    url: str,
    rows: Callable[[], list[bytes]],
    acknowledged_s: float = ACKNOWLEDGED_S,
    *,
    settled_s: float = 5.0,
) -> Outcome:
    """Send until the rule has struck, and hold what was delivered against the acknowledgements."""
    until_s = time.monotonic() + PLAY_S

    struck_s: list[float] = []

    def enough() -> bool:
        """Whether the rule has struck, and some messages were sent since, or it never will."""
        now_s = time.monotonic()
        if rule.played and not struck_s:
            struck_s.append(now_s)
        return now_s > until_s or (bool(struck_s) and now_s > struck_s[0] + GO_ON_S)

    timeout = aiohttp.ClientTimeout(total=4.0)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        senders = [SENDERS_OF[kind](place, url, session) for place in range(SENDERS)]
        sending, finished = asyncio.gather(*(sender.run(enough) for sender in senders)), False
        try:
            async with asyncio.timeout(acknowledged_s):
                while not rule.played and not sending.done():
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0.5)
                if play.heals:
                    relay.heal()
                await sending
                finished = True
        except TimeoutError:
            pass
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            await asyncio.gather(*(sender.end() for sender in senders))
    if receiver.health().state is ConsumerState.FAILED:
        return Outcome("differs", f"it has ended: {receiver.health().error}")
    if not rule.played:
        return Outcome("not played")
    until_s = time.monotonic() + settled_s
    wrong = compare(senders, rows())
    while wrong and time.monotonic() < until_s:
        await asyncio.sleep(0.1)
        wrong = compare(senders, rows())
    if wrong:
        return Outcome("differs", wrong)
    answers = sum((sender.answers for sender in senders), Counter[str]())
    if not finished:
        said = answers.most_common(1)[0][0] if answers else "nothing"
        refused = len(answers) == 1 and said.startswith("4") and not said.startswith("408")
        return Outcome("refused" if refused else "differs", f"not acknowledged: {said}")
    # A sender may take such an answer as the end of a message, which was delivered.
    final = [said for said in answers if said.startswith("4") and not said.startswith("408")]
    return Outcome("differs", f"a good message got {final[0]}") if final else Outcome("ok")


def delivered(file: Path) -> list[bytes]:
    """The bodies in the order of delivery."""
    with closing(sqlite3.connect(file, timeout=30)) as raw:
        return [body for (body,) in raw.execute("SELECT body FROM instep_message ORDER BY id")]


def compare(senders: list[Sender], bodies: list[bytes]) -> str:
    """What is wrong of what was delivered; empty: each acknowledged message once, and in order."""
    found = [read_message(body) for body in bodies]
    for sender in senders:
        numbers = [number for place, number, _ in found if place == sender.place]
        if numbers != list(range(sender.first, sender.first + len(numbers))):
            return f"sender {sender.place}: {numbers} were delivered"
        if not sender.acknowledged <= set(numbers):
            lost = sorted(sender.acknowledged - set(numbers))
            return f"sender {sender.place}: {lost} are acknowledged and not delivered"
    if any(word != WORD for _, _, word in found):
        return f"{sorted({word for _, _, word in found})} instead of {WORD}"
    return ""


def read_message(body: bytes) -> tuple[int, int, str]:
    """Sender, number and word of a body."""
    if body[:1] == b"{":
        content = json.loads(body)["body"]
        return content["sender"], content["number"], content["word"]
    root = etree.fromstring(body)
    return int(root.get("sender", "")), int(root.get("number", "")), root.get("word", "")
