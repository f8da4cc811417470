"""What the receivers of the SOAP protocols share: they answer an envelope once what it changed is
durable (S3).
"""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final, TypeVar

from lxml.etree import _Element

from instep.errors import InstepError, StoreUnavailableError
from instep.sequencing.effects import SequenceEffect
from instep_soap.endpoint import SoapRequest, UsualMessages
from instep_soap.envelope import check_understood, fault_of
from instep_soap.errors import FaultCode, SoapFaultError, XmlError
from instep_soap.header_templates import HeaderReading, HeaderTemplates
from instep_soap.xml import XmlLimits, read_xml

__all__ = ["AWAY", "SoapReceiver", "read_reply"]

AWAY: Final = "the store is unavailable: send it again later"

_log = logging.getLogger("instep.soap")

H = TypeVar("H")


class SoapReceiver(UsualMessages[H]):
    """Answers the envelopes of peers, the usual ones faster."""

    varying: ClassVar[Mapping[str, str]]
    """What varies between usual messages: see `HeaderTemplates`."""

    async def answer(self, request: SoapRequest) -> bytes | None:
        """The envelope of the response; None: there is none. Raises `SoapFaultError`."""
        check_understood(request.envelope, self.understands)
        if (fault := fault_of(request.envelope)) is not None:
            # A fault is not answered with a fault; a sequence that its source gave up ends idle.
            _log.info("a peer reports %s: %s", fault.subcode or fault.fault_code, fault.message)
            return None
        try:
            return await self.respond(request)
        except SoapFaultError:
            raise
        except InstepError as error:
            raise self.not_kept(error) from error

    def not_kept(self, error: InstepError) -> SoapFaultError:
        """The fault for an envelope that the intake could not take."""
        _log.debug("an envelope cannot be taken now: %s", error)
        away = isinstance(error, StoreUnavailableError)
        return self.not_available(AWAY if away else "it cannot be kept now")

    def templates(
        self, read: Callable[[bytes], HeaderReading[H] | None], limits: XmlLimits
    ) -> HeaderTemplates[H]:
        """See `UsualMessages`."""
        return HeaderTemplates(self.varying, self.vary, read, limits)

    async def run(self) -> None:
        """Send what is sent on its own, until cancelled."""
        await asyncio.Event().wait()

    @staticmethod
    @abstractmethod
    def understands(name: str, /) -> bool:
        """Whether a header block is understood."""

    @staticmethod
    @abstractmethod
    def not_available(reason: str, /) -> SoapFaultError:
        """The fault that says: nothing is accepted now, and the same may be sent again."""

    @abstractmethod
    async def respond(self, request: SoapRequest) -> bytes | None:
        """See `answer`: the headers are understood, and it is no fault."""

    @abstractmethod
    def vary(self, reading: HeaderReading[H], texts: Sequence[str]) -> HeaderReading[H] | None:
        """See `HeaderTemplates`."""

    @abstractmethod
    async def report(self, scope: str, effect: SequenceEffect) -> bool:
        """Send to the peer of a sequence what the sequence decided; False: it stated no address."""


def read_reply(reply: bytes, number: int) -> _Element:
    """What a handler returned for a message, as XML. Raises `SoapFaultError`."""
    try:
        return read_xml(reply, XmlLimits())
    except XmlError as error:
        _log.error("the reply to message %d is no XML: %s", number, error.message)
        raise SoapFaultError(FaultCode.RECEIVER, "the reply cannot be sent") from None
