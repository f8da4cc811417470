"""What is kept of a CreateSequence, and how sequences are named.

A name has 74 random bits, because whoever knows it can send in the sequence. Its last 48 bits are a
digest of the peer that opened it, so that the peer is known from the name alone.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict
from hashlib import blake2b
from typing import Final

import msgspec

from instep.ports.listener import Intake
from instep_soap import SOAP12, WSA_2005, EndpointReference, SoapVersion
from instep_soap.names import ANY_SOAP, ANY_WSA
from instep_wsrm.wire.names import ANY_RM, RM11, RmVersion

__all__ = ["KnownSequences", "SequenceAttributes", "new_identifier", "peer_of"]

_PEER_BYTES: Final = 6
_MOST_CACHED: Final = 10_000


class SequenceAttributes(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a CreateSequence stated; stored with the sequence (S9)."""

    peer: str
    """Who opened it: the name in its certificate, else the origin of its AcksTo, or the IP address
    of its request."""
    certificate: str = ""
    """The name in the certificate of who opened it, and alone may use it; empty: none was asked
    for, and whoever knows the identifier may."""
    rm: str = RM11.namespace
    soap: str = SOAP12.namespace
    wsa: str = WSA_2005.namespace
    acks_to: str = ""
    """An address; empty: the response of each request."""
    acks_to_parameters: tuple[str, ...] = ()
    """The reference parameters of that address, as XML."""
    offered: str = ""
    """The sequence that we accepted for the replies; empty: there is none."""

    @property
    def version(self) -> RmVersion:
        return ANY_RM[self.rm]

    @property
    def soap_version(self) -> SoapVersion:
        return ANY_SOAP[self.soap]

    def admits(self, identity: str) -> bool:
        """Whether a sender with this name in its certificate may use the sequence."""
        return self.certificate in ("", identity)

    def acks_endpoint(self) -> EndpointReference:
        """Where acknowledgements are sent."""
        return EndpointReference(ANY_WSA[self.wsa], self.acks_to, self.acks_to_parameters)


_decode: Final = msgspec.json.Decoder(SequenceAttributes).decode


class KnownSequences:
    """What the sources of sequences stated: as stored, and in memory for those in use."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._attributes: OrderedDict[str, SequenceAttributes] = OrderedDict()
        self._offered: OrderedDict[str, str] = OrderedDict()

    async def attributes(self, identifier: str) -> SequenceAttributes | None:
        """What the source of a sequence stated; None: the sequence is unknown."""
        found = self._attributes.get(identifier)
        if found is None:
            stored = await self._intake.attributes(identifier)
            if not stored:
                return None
            found = _decode(stored)
            self.add(identifier, found)
        return found

    def in_memory(self, identifier: str) -> SequenceAttributes | None:
        """`attributes` of those in memory."""
        return self._attributes.get(identifier)

    def offered_with(self, offered: str) -> str | None:
        """The sequence that this one was offered with, of those in memory. The first one counts:
        nobody can take an identifier over by offering it again.
        """
        return self._offered.get(offered)

    def add(self, identifier: str, attributes: SequenceAttributes) -> None:
        """Keep what was stated, in memory."""
        self._attributes[identifier] = attributes
        if len(self._attributes) > _MOST_CACHED:
            self._attributes.popitem(last=False)
        if attributes.offered:
            self._offered.setdefault(attributes.offered, identifier)
            if len(self._offered) > _MOST_CACHED:
                self._offered.popitem(last=False)

    def forget(self, identifier: str) -> None:
        """Forget what was stated: the sequence is not known any more."""
        self._attributes.pop(identifier, None)


def new_identifier(peer: str) -> str:
    """A name for a sequence of this peer."""
    digest = blake2b(peer.encode(), digest_size=_PEER_BYTES).digest()
    raw = bytearray(uuid.uuid4().bytes[: 16 - _PEER_BYTES] + digest)
    raw[6] = raw[6] & 0x0F | 0x80  # version 8: custom (RFC 9562 5.8)
    return uuid.UUID(bytes=bytes(raw)).urn


def peer_of(identifier: str) -> str:
    """What stands for the peer in the name of a sequence."""
    return identifier[-2 * _PEER_BYTES :]
