"""An RM source: it numbers, sends, resends, cancels, fills and closes. For tests, and for trials by
hand: what is not acknowledged is kept in memory only.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import Final

from lxml.etree import _Element

from instep.errors import SourceError
from instep.model.ranges import Ranges
from instep_http import GuardedClient
from instep_soap import (
    SOAP12,
    EndpointReference,
    Envelope,
    SoapVersion,
    WsaVersion,
    XmlLimits,
    local_name,
    namespace_of,
    new_envelope,
    post_envelope,
    read_xml,
    xml_bytes,
)
from instep_wsrm.wire import encoder
from instep_wsrm.wire.messages import Pairs
from instep_wsrm.wire.names import RM11, RmVersion

__all__ = ["WsrmSource"]

_MOST_KEPT: Final = 100_000


class WsrmSource:
    """Sends one sequence to a destination.

    A message is kept until it is acknowledged, cancelled or filled; `resend` sends the same bytes
    again. Faults are raised as `SoapFaultError`, lost connections and statuses as `SourceError`.

    Args:
        url: The address of the destination.
        client: Sends the requests.
        version: The version of WS-ReliableMessaging.
        soap: The version of SOAP.
        wsa: The version of WS-Addressing; None: the one that the specification names.
        acks_to: Where acknowledgements are to go; empty: into the responses.
    """

    def __init__(
        self,
        url: str,
        client: GuardedClient,
        *,
        version: RmVersion = RM11,
        soap: SoapVersion = SOAP12,
        wsa: WsaVersion | None = None,
        acks_to: str = "",
    ) -> None:
        self.url = url
        self.version = version
        self.identifier = ""
        """The name of the sequence, once it is created."""
        self.next_number = 1
        self.acknowledged = Ranges()
        """As last reported by the destination …"""
        self.cancelled = Ranges()
        """… and what it promised never to accept."""
        self.nacked: list[int] = []
        """Numbers that it asked for."""
        self.final = False
        """Whether the acknowledgement is final."""
        self.expires = ""
        """The duration that the destination granted."""
        self.accepted_offer = False
        """Whether it accepted the sequence that was offered for the replies."""
        self._client = client
        self._soap = soap
        self._wsa = wsa or version.addressing
        self._acks_to = EndpointReference(self._wsa, acks_to)
        self._kept: dict[int, tuple[bytes, str]] = {}

    def __repr__(self) -> str:
        return f"<WsrmSource {self.identifier}, {self.acknowledged!r} acknowledged>"

    @property
    def unacknowledged(self) -> list[int]:
        """The numbers of the messages that are kept, rising."""
        return sorted(self._kept)

    async def create(self, *, expires_s: float | None = None, offer: str = "") -> str:
        """Create the sequence; returns its identifier. `offer` names one for the replies."""
        body = encoder.create_sequence(
            self.version, self._acks_to, expires_s=expires_s, offer=offer
        )
        found = await self._request("CreateSequence", (), body)
        if found is None or not found.body:
            raise SourceError("no CreateSequenceResponse", where=self.url)
        response = found.body[0]
        self.identifier = (response.findtext(self.version.name("Identifier")) or "").strip()
        self.expires = response.findtext(self.version.name("Expires")) or ""
        self.accepted_offer = response.find(self.version.name("Accept")) is not None
        return self.identifier

    async def send(
        self,
        body: bytes,
        action: str,
        *,
        number: int | None = None,
        last: bool = False,
        ack: bool = True,
        cancel: Pairs | None = None,
        fill: Pairs | None = None,
    ) -> bytes:
        """Send the next message, or one with this number; returns the content of the response's
        body, empty where there is none.

        `last`: LastMessage of 1.0. `ack`: ask for an acknowledgement. `cancel` and `fill` travel in
        the same envelope.
        """
        envelope = self.write(
            body, action, number=number, last=last, ack=ack, cancel=cancel, fill=fill
        )
        return await self.post(envelope, action)

    def write(
        self,
        body: bytes,
        action: str,
        *,
        number: int | None = None,
        last: bool = False,
        ack: bool = True,
        cancel: Pairs | None = None,
        fill: Pairs | None = None,
    ) -> bytes:
        """The envelope of a message, kept but not sent: see `send`."""
        if len(self._kept) >= _MOST_KEPT:
            raise SourceError("too many messages are not acknowledged", where=self.url)
        if number is None:
            number = self.next_number
        self.next_number = max(self.next_number, number + 1)
        headers = [encoder.sequence(self.version, self.identifier, number, last=last)]
        if ack:
            headers.append(encoder.ack_requested(self.version, self.identifier))
        if cancel is not None:
            headers.append(encoder.cancel(self.version, self.identifier, cancel))
        if fill is not None:
            headers.append(encoder.fill(self.version, self.identifier, fill))
        headers[0].set(self._soap.name("mustUnderstand"), "1")
        content = read_xml(body, XmlLimits()) if body else None
        raw = self._envelope(action, headers, content=content)
        self._kept[number] = raw, action
        return raw

    async def post(self, envelope: bytes, action: str) -> bytes:
        """Send an envelope of `write`."""
        found = await post_envelope(self._client, self.url, envelope, self._soap, action)
        self.read(found)
        return found.content() if found is not None else b""

    async def resend(self, *numbers: int) -> None:
        """Send messages again, byte for byte; without numbers all that are kept."""
        for number in numbers or self.unacknowledged:
            if number in self._kept:
                await self.post(*self._kept[number])

    async def ask(self, highest: int | None = None) -> None:
        """Ask for an acknowledgement; `highest` is MaxMessageNumberUsed of 1.0."""
        block = encoder.ack_requested(self.version, self.identifier, highest)
        await self._request("AckRequested", [block])

    async def cancel(self, *ranges: tuple[int, int]) -> None:
        """Ask the destination never to accept numbers that it has not received."""
        block = encoder.cancel(self.version, self.identifier, list(ranges))
        await self._request("SequenceCancel", [block])

    async def fill(self, *ranges: tuple[int, int]) -> None:
        """Ask the destination to acknowledge numbers that no message will come for."""
        block = encoder.fill(self.version, self.identifier, list(ranges))
        await self._request("SequenceFill", [block])

    async def last_message(self, *, cancel: Pairs | None = None) -> None:
        """End a sequence of 1.0 with a LastMessage that has no content."""
        await self.send(b"", self.version.action("LastMessage"), last=True, cancel=cancel)

    async def close(self, *, cancel: Pairs | None = None) -> None:
        """Close the sequence (1.1): its acknowledgement is final then."""
        body = encoder.close_sequence(self.version, self.identifier, self._last_number())
        await self._request("CloseSequence", self._cancels(cancel), body)

    async def terminate(self, *, cancel: Pairs | None = None) -> None:
        """End the sequence; the destination may forget it."""
        body = encoder.terminate_sequence(self.version, self.identifier, self._last_number())
        await self._request("TerminateSequence", self._cancels(cancel), body)

    def read(self, envelope: Envelope | None) -> None:
        """Read the acknowledgements of an envelope: of a response, or one sent to `acks_to`."""
        for block in envelope.headers if envelope is not None else ():
            name = str(block.tag)
            if namespace_of(name) != self.version.namespace:
                continue
            if (block.findtext(self.version.name("Identifier")) or "") != self.identifier:
                continue
            if local_name(name) == "SequenceAcknowledgement":
                self.nacked = [int(one.text or 0) for one in block.iter(self.version.name("Nack"))]
                if not self.nacked:
                    self.acknowledged = _ranges(block)
                    self.final = block.find(self.version.name("Final")) is not None
            elif local_name(name) == "SequenceCancelAcknowledgement":
                self.cancelled = _ranges(block)
        settled = self.acknowledged | self.cancelled
        self._kept = {n: one for n, one in self._kept.items() if n not in settled}

    def _last_number(self) -> int | None:
        return self.next_number - 1 or None

    def _cancels(self, ranges: Pairs | None) -> list[_Element]:
        if ranges is None:
            return []
        return [encoder.cancel(self.version, self.identifier, ranges)]

    async def _request(
        self, local: str, headers: Sequence[_Element], body: _Element | None = None
    ) -> Envelope | None:
        action = self.version.action(local)
        raw = self._envelope(action, headers, body)
        found = await post_envelope(self._client, self.url, raw, self._soap, action)
        self.read(found)
        return found

    def _envelope(
        self,
        action: str,
        headers: Iterable[_Element],
        body: _Element | None = None,
        content: _Element | None = None,
    ) -> bytes:
        anonymous = EndpointReference(self._wsa, "")
        root, header, inside = new_envelope(
            self._soap,
            self._wsa,
            action,
            prefixes={"r": self.version.namespace},
            message_id=uuid.uuid4().urn,
            to=EndpointReference(self._wsa, self.url),
            reply_to=anonymous,
        )
        header.extend(deepcopy(one) for one in headers)
        if body is not None:
            inside.append(body)
        return xml_bytes(root, content)


def _ranges(block: _Element) -> Ranges:
    """The ranges of an acknowledgement, in either spelling."""
    named = [one for one in block if one.get("Lower") is not None]
    return Ranges.of(*((int(one.get("Lower", "0")), int(one.get("Upper", "0"))) for one in named))
