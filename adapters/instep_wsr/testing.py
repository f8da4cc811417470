"""A Sending RMP: it numbers, sends, sends again and polls. For tests, and for trials by hand: what
is not acknowledged is kept in memory only.
"""

from __future__ import annotations

import time
import uuid
from typing import Final

import msgspec

from instep.errors import SourceError
from instep.model.ranges import Ranges
from instep_http import GuardedClient
from instep_soap import SOAP11, Envelope, SoapVersion, XmlLimits, post_envelope, read_xml
from instep_wsr.wire import encoder
from instep_wsr.wire.messages import Pairs, PolledGroup, PollRequest, Request
from instep_wsr.wire.names import ReplyPattern, wsr_name

__all__ = ["WsrSource"]

_MOST_KEPT: Final = 100_000
_US: Final = 1_000_000


class WsrSource:
    """Sends one group of messages to a receiver.

    A message is kept until it is acknowledged or faulted; `resend` sends the same bytes again. SOAP
    faults are raised as `SoapFaultError`, lost connections and statuses as `SourceError`; RM faults
    are in `faults`.

    Args:
        url: The address of the receiver.
        client: Sends the requests.
        group_id: The identifier of the group; empty: a new one.
        sequenced: Whether messages have SequenceNum; else the group has one message.
        ordered: Whether they have MessageOrder.
        pattern: Where acknowledgements and faults go.
        reply_to: The address of callbacks.
        group_expires_at_us: groupExpiryTime, in microseconds since 1970; 0: none.
        group_max_idle_s: groupMaxIdleDuration, in seconds; None: none.
        soap: The version of SOAP.
    """

    def __init__(  # noqa: PLR0913 - what a group states
        self,
        url: str,
        client: GuardedClient,
        *,
        group_id: str = "",
        sequenced: bool = True,
        ordered: bool = True,
        pattern: ReplyPattern = ReplyPattern.RESPONSE,
        reply_to: str = "",
        group_expires_at_us: int = 0,
        group_max_idle_s: float | None = None,
        soap: SoapVersion = SOAP11,
    ) -> None:
        self.url = url
        self.group_id = group_id or f"mid:{uuid.uuid4()}@instep.invalid"
        self.next_number = 0
        self.acknowledged = Ranges()
        """What the receiver has acknowledged …"""
        self.faults: dict[int, str] = {}
        """… and what it refused or did not deliver: number → code. Ranges of faults that are wider
        than what is kept are cut to it."""
        self._client = client
        self._sequenced = sequenced
        self._soap = soap
        self._template = Request(
            group_id=self.group_id,
            number=None,
            group_expires_at_us=group_expires_at_us,
            group_max_idle_s=group_max_idle_s,
            expires_at_us=0,
            pattern=pattern,
            reply_to=reply_to,
            ack_requested=True,
            duplicate_elimination=True,
            message_order=ordered and sequenced,
        )
        self._kept: dict[int, bytes] = {}

    def __repr__(self) -> str:
        return f"<WsrSource {self.group_id}, {self.acknowledged!r} acknowledged>"

    @property
    def unacknowledged(self) -> list[int]:
        """The numbers of the messages that are kept, rising."""
        return sorted(self._kept)

    async def send(
        self,
        body: bytes,
        *,
        number: int | None = None,
        last: bool = False,
        expires_at_us: int | None = None,
    ) -> bytes | None:
        """Send the next message, or one with this number. Without an ExpiryTime it has an hour.
        Returns the body of the response; None: it has none.
        """
        return await self._post(
            self.write(body, number=number, last=last, expires_at_us=expires_at_us)
        )

    def write(
        self,
        body: bytes,
        *,
        number: int | None = None,
        last: bool = False,
        expires_at_us: int | None = None,
    ) -> bytes:
        """The envelope of a message, kept but not sent: see `send`."""
        if len(self._kept) >= _MOST_KEPT:
            raise SourceError("too many messages are not acknowledged", where=self.url)
        if number is None:
            number = self.next_number
        self.next_number = max(self.next_number, number + 1)
        if expires_at_us is None:
            expires_at_us = int((time.time() + 3600) * _US)
        request = msgspec.structs.replace(
            self._template,
            number=number if self._sequenced else None,
            last=last,
            expires_at_us=expires_at_us,
        )
        content = read_xml(body, XmlLimits()) if body else None
        raw = encoder.envelope(self._soap, [encoder.request(request)], content)
        self._kept[number] = raw
        return raw

    async def resend(self, *numbers: int) -> None:
        """Send messages again, byte for byte; without numbers all that are kept."""
        for number in numbers or self.unacknowledged:
            if number in self._kept:
                await self._post(self._kept[number])

    async def poll(self, *ranges: tuple[int, int], reply_to: str = "") -> None:
        """Ask what became of the messages of some ranges; without ranges of all."""
        poll = PollRequest([PolledGroup(self.group_id, list(ranges))], reply_to)
        await self._post(encoder.envelope(self._soap, [encoder.poll_request(poll)]))

    def read(self, envelope: Envelope | None) -> None:
        """Read the replies of an envelope: of a response, or of a callback."""
        for block in envelope.headers if envelope is not None else ():
            if block.tag != wsr_name("Response"):
                continue
            for group in block:
                if group.get("groupId") != self.group_id:
                    continue
                if group.tag == wsr_name("NonSequenceReply"):
                    self._note([(0, 0)], group.get("fault", ""))
                for one in group.iter(wsr_name("ReplyRange")):
                    pair = (int(one.get("from", "0")), int(one.get("to", "0")))
                    self._note([pair], one.get("fault", ""))

    def _note(self, ranges: Pairs, fault: str) -> None:
        numbers = Ranges.of(*ranges)
        if not fault:
            self.acknowledged.update(numbers)
        else:
            code = fault.rpartition(":")[2]
            self.faults |= {number: code for number in range(self.next_number) if number in numbers}
            self.acknowledged.subtract(numbers)
        self._kept = {number: raw for number, raw in self._kept.items() if number not in numbers}

    async def _post(self, raw: bytes) -> bytes | None:
        answer = await post_envelope(self._client, self.url, raw, self._soap, "")
        self.read(answer)
        return answer.content() or None if answer is not None else None
