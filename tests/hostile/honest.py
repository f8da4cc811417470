"""Senders that keep to their protocols: each numbers its messages, and sends each until it is
accepted.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import time
from typing import Any, Protocol

import aiohttp

from tests.hostile.attacks import BID

__all__ = ["DidcommSender", "HonestSender", "RmSender"]


class HonestSender(Protocol):
    """What is known of a sender."""

    name: str
    accepted: int
    """How many of its messages were accepted: the numbers up to this one."""
    seconds: list[float]
    """From the first sending of a message to its acceptance."""

    async def run(self, until_s: float) -> None:
        """Send until this time of the monotonic clock."""


class DidcommSender:
    """Numbers by sender_order."""

    def __init__(self, url: str, name: str, every_s: float) -> None:
        self.url = url
        self.name = f"did:ex:honest-{name}"
        self.every_s = every_s
        self.accepted = 0
        self.seconds: list[float] = []

    async def run(self, until_s: float) -> None:
        timeout = aiohttp.ClientTimeout(total=10)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            for number in itertools.count(1):
                if time.monotonic() >= until_s:
                    return
                await self._send(session, number)
                self.accepted = number
                await asyncio.sleep(self.every_s)

    async def _send(self, session: aiohttp.ClientSession, number: int) -> None:
        began_s = time.monotonic()
        message: dict[str, Any] = {
            "id": f"{self.name[-8:]}-{number}",
            "type": BID,
            "from": self.name,
            "thid": "honest",
            "sender_order": number,
            "body": {"amount": number},
        }
        for sent_count in itertools.count(1):
            if sent_count > 1:
                message["sent_count"] = sent_count
            try:
                async with session.post(self.url, json=message) as response:
                    if response.status == 202:
                        break
                    assert response.status == 503, await response.text()
            except (aiohttp.ClientError, OSError, TimeoutError):
                pass
            await asyncio.sleep(0.05)
        self.seconds.append(time.monotonic() - began_s)


_SOAP = "http://www.w3.org/2003/05/soap-envelope"
_WSA = "http://www.w3.org/2005/08/addressing"
_RM = "http://docs.oasis-open.org/ws-rx/wsrm/200702"


class RmSender:
    """Numbers by MessageNumber in a sequence that it creates."""

    def __init__(self, url: str, every_s: float) -> None:
        self.url = url
        self.name = ""
        self.every_s = every_s
        self.accepted = 0
        self.seconds: list[float] = []

    async def run(self, until_s: float) -> None:
        timeout = aiohttp.ClientTimeout(total=10)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            acks = f"<a:Address>{_WSA}/anonymous</a:Address>"
            create = f"<w:CreateSequence><w:AcksTo>{acks}</w:AcksTo></w:CreateSequence>"
            answer = await self._say(session, f"{_RM}/CreateSequence", "", create)
            found = re.search(r"Identifier[^>]*>([^<]+)<", answer)
            assert found, answer
            self.name = found[1]
            for number in itertools.count(1):
                if time.monotonic() >= until_s:
                    return
                sequence = (
                    f"<w:Sequence><w:Identifier>{self.name}</w:Identifier>"
                    f"<w:MessageNumber>{number}</w:MessageNumber></w:Sequence>"
                )
                began_s = time.monotonic()
                await self._say(session, "urn:notify", sequence, f"<n>{number}</n>")
                self.seconds.append(time.monotonic() - began_s)
                self.accepted = number
                await asyncio.sleep(self.every_s)

    async def _say(
        self, session: aiohttp.ClientSession, action: str, headers: str, body: str
    ) -> str:
        envelope = (
            f'<s:Envelope xmlns:s="{_SOAP}" xmlns:a="{_WSA}" xmlns:w="{_RM}"><s:Header>'
            f"<a:Action>{action}</a:Action><a:MessageID>urn:uuid:m</a:MessageID>{headers}"
            f"</s:Header><s:Body>{body}</s:Body></s:Envelope>"
        ).encode()
        media_type = {"Content-Type": "application/soap+xml; charset=utf-8"}
        while True:
            try:
                async with session.post(self.url, data=envelope, headers=media_type) as response:
                    text = await response.text()
                    if response.status in {200, 202}:
                        return text
                    assert response.status == 503 or "not durable" in text, text
            except (aiohttp.ClientError, OSError, TimeoutError):
                pass
            await asyncio.sleep(0.05)
