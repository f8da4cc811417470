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
from instep_soap import WSA_2005, EndpointReference, OpenedSequence, SequenceCache
from instep_soap.names import ANY_WSA
from instep_soap.sequence_cache import MOST_CACHED
from instep_wsrm.wire.names import ANY_RM, RM11, RmVersion

__all__ = ["KnownSequences", "SequenceAttributes", "new_identifier", "peer_of"]

_PEER_BYTES: Final = 6


class SequenceAttributes(OpenedSequence, frozen=True, kw_only=True, omit_defaults=True):
    """What a CreateSequence stated; stored with the sequence (S9)."""

    peer: str
    """Who opened it: the name in its certificate, else the origin of its AcksTo, or the IP address
    of its request."""
    rm: str = RM11.namespace
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

    def acks_endpoint(self) -> EndpointReference:
        """Where acknowledgements are sent."""
        return EndpointReference(ANY_WSA[self.wsa], self.acks_to, self.acks_to_parameters)


_decode: Final = msgspec.json.Decoder(SequenceAttributes).decode


class KnownSequences(SequenceCache[SequenceAttributes]):
    """What the sources of sequences stated."""

    def __init__(self, intake: Intake) -> None:
        super().__init__(intake, _decode)
        self._offered: OrderedDict[str, str] = OrderedDict()

    def offered_with(self, offered: str) -> str | None:
        """The sequence that this one was offered with, of those in memory. The first one counts:
        nobody can take an identifier over by offering it again.
        """
        return self._offered.get(offered)

    def add(self, identifier: str, attributes: SequenceAttributes) -> None:
        """See `SequenceCache.add`."""
        super().add(identifier, attributes)
        if attributes.offered:
            self._offered.setdefault(attributes.offered, identifier)
            if len(self._offered) > MOST_CACHED:
                self._offered.popitem(last=False)


def new_identifier(peer: str) -> str:
    """A name for a sequence of this peer."""
    digest = blake2b(peer.encode(), digest_size=_PEER_BYTES).digest()
    raw = bytearray(uuid.uuid4().bytes[: 16 - _PEER_BYTES] + digest)
    raw[6] = raw[6] & 0x0F | 0x80  # version 8: custom (RFC 9562 5.8)
    return uuid.UUID(bytes=bytes(raw)).urn


def peer_of(identifier: str) -> str:
    """What stands for the peer in the name of a sequence."""
    return identifier[-2 * _PEER_BYTES :]
