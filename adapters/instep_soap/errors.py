"""What is wrong with XML, and SOAP faults as errors: raised where a message is refused, written in
the shape of its version.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from lxml.etree import _Element

from instep.errors import InstepError
from instep_soap.names import SoapVersion

__all__ = ["CharsetError", "FaultCode", "SoapFaultError", "UnknownCharsetError", "XmlError"]


class XmlError(InstepError):
    """The bytes are no XML, or XML that is not accepted."""

    code = "xml"


class CharsetError(XmlError):
    """The bytes are not in the encoding that counts (RFC 7303 3)."""

    code = "charset"


class UnknownCharsetError(CharsetError):
    """The encoding is none that is read here."""


class FaultCode(StrEnum):
    """Who made the mistake (SOAP 1.2 Part 1, 5.4.6). SOAP 1.1 calls the first two Client and
    Server.
    """

    SENDER = "Sender"
    RECEIVER = "Receiver"
    VERSION_MISMATCH = "VersionMismatch"
    MUST_UNDERSTAND = "MustUnderstand"


class SoapFaultError(InstepError):
    """A message is answered with a fault.

    Args:
        code: Who made the mistake.
        reason: The text for a person.
        subcode: What went wrong, as lxml writes a name; empty: no more than `code`.
        detail: Elements of the protocol that explain it.
        action: The Action of the fault; empty: the one of WS-Addressing.
        header_11: The header block that states subcode and detail in SOAP 1.1 (WS-RM
            SequenceFault), because detail is about the body there. None: the subcode is the
            faultcode.
        not_understood: Names of header blocks that nobody here understands.
        status: The HTTP status; 0: the one of the binding.
        retry_after_s: When the sender may try again, in seconds; 0: nothing is said.
    """

    code = "soap-fault"

    def __init__(  # noqa: PLR0913 - the parts of a fault
        self,
        code: FaultCode,
        reason: str,
        *,
        subcode: str = "",
        detail: Sequence[_Element] = (),
        action: str = "",
        header_11: _Element | None = None,
        not_understood: Sequence[str] = (),
        status: int = 0,
        retry_after_s: int = 0,
    ) -> None:
        super().__init__(reason, subcode=subcode)
        self.fault_code = code
        self.subcode = subcode
        self.detail = list(detail)
        self.action = action
        self.header_11 = header_11
        self.not_understood = list(not_understood)
        self.status = status
        self.retry_after_s = retry_after_s
        self.version: SoapVersion | None = None
        """The version of the envelope that it is about; None: it is not known."""
