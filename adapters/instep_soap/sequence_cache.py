"""What peers stated about their sequences when they opened them (S9)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Generic, TypeVar

import msgspec

from instep.ports.listener import Intake
from instep_soap.names import ANY_SOAP, SOAP12, SoapVersion

__all__ = ["MOST_CACHED", "OpenedSequence", "SequenceCache"]

MOST_CACHED: Final = 10_000


class OpenedSequence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the opening of a sequence stated; stored with it."""

    certificate: str = ""
    """The name in the certificate of who opened it, and alone may use it; empty: none was asked
    for, and whoever knows the identifier may."""
    soap: str = SOAP12.namespace

    @property
    def soap_version(self) -> SoapVersion:
        return ANY_SOAP[self.soap]

    def admits(self, identity: str) -> bool:
        """Whether a sender with this name in its certificate may use the sequence."""
        return self.certificate in ("", identity)


AttributesT = TypeVar("AttributesT", bound=OpenedSequence)


class SequenceCache(Generic[AttributesT]):
    """What was stated: as stored, and in memory for the sequences in use."""

    def __init__(self, intake: Intake, decode: Callable[[bytes], AttributesT]) -> None:
        self._intake = intake
        self._decode = decode
        self._attributes: OrderedDict[str, AttributesT] = OrderedDict()

    async def attributes(self, identifier: str) -> AttributesT | None:
        """What the opening of a sequence stated; None: the sequence is unknown."""
        found = self._attributes.get(identifier)
        if found is None:
            stored = await self._intake.attributes(identifier)
            if not stored:
                return None
            found = self._decode(stored)
            self.add(identifier, found)
        return found

    def in_memory(self, identifier: str) -> AttributesT | None:
        """`attributes` of those in memory."""
        return self._attributes.get(identifier)

    def add(self, identifier: str, attributes: AttributesT) -> None:
        """Keep what was stated, in memory."""
        self._attributes[identifier] = attributes
        if len(self._attributes) > MOST_CACHED:
            self._attributes.popitem(last=False)

    def forget(self, identifier: str) -> None:
        """Forget it in memory: the store does not know the sequence any more."""
        self._attributes.pop(identifier, None)
