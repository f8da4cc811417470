"""The faults of WS-ReliableMessaging (WS-RM 4, in 1.1 and 1.0)."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Final

from lxml.etree import Element, SubElement, _Element

from instep.sequencing.transitions import Refusal
from instep_soap import AWAY, FaultCode, SoapFaultError, local_name
from instep_wsrm.wire.names import RM11, RmVersion

__all__ = [
    "create_refused",
    "invalid_acknowledgement",
    "not_available",
    "not_now",
    "refused",
    "rm_required",
    "rollover",
    "terminated",
    "unknown_sequence",
]

_MAX_NUMBER: Final = 2**63 - 1
_RETRY_AFTER_S: Final = 1
_ACKNOWLEDGED: Final = {
    "Identifier": (),
    "AcknowledgementRange": ("Lower", "Upper"),
    "Nack": (),
    "None": (),
    "Final": (),
}
"""What SequenceAcknowledgement consists of, with the attributes."""
_NEVER: Final = {
    Refusal.GIVEN_UP: "The Sequence is closed to this wsrm:MessageNumber: delivery went on without"
    " it, and it will never be accepted. SequenceCancel of the number is answered.",
    Refusal.TOO_MANY_GAPS: "The Sequence is closed to more gaps: it has as many ranges of numbers"
    " as are kept. SequenceFill of earlier numbers closes some.",
}
"""No code of WS-RM is about one number; this one says what will not be accepted any more."""
_NOT_NOW: Final = frozenset({Refusal.FULL, Refusal.UNAVAILABLE, Refusal.TOO_FAR_AHEAD})


def unknown_sequence(version: RmVersion, identifier: str) -> SoapFaultError:
    """UnknownSequence: never opened here, or forgotten since."""
    reason = "The value of wsrm:Identifier is not a known Sequence identifier."
    return _fault(version, "UnknownSequence", reason, [_identifier(version, identifier)])


def terminated(version: RmVersion, identifier: str, why: str) -> SoapFaultError:
    """SequenceTerminated: the sequence has ended, by its source, by its time or by a failure."""
    return _fault(version, "SequenceTerminated", why, [_identifier(version, identifier)])


def rollover(version: RmVersion, identifier: str) -> SoapFaultError:
    """MessageNumberRollover: there are no numbers left."""
    detail = [_identifier(version, identifier)]
    if version is RM11:
        highest = Element(version.name("MaxMessageNumber"))
        highest.text = str(_MAX_NUMBER)
        detail.append(highest)
    reason = "The maximum value for wsrm:MessageNumber has been exceeded."
    return _fault(version, "MessageNumberRollover", reason, detail)


def invalid_acknowledgement(
    version: RmVersion, reason: str, acknowledgement: _Element | None
) -> SoapFaultError:
    """InvalidAcknowledgement: it acknowledges what was never sent, or cannot be read."""
    detail = [] if acknowledgement is None else [_repeated(version, acknowledgement)]
    return _fault(version, "InvalidAcknowledgement", reason, detail)


def create_refused(version: RmVersion, reason: str, *, ours: bool = False) -> SoapFaultError:
    """CreateSequenceRefused. It is about a body, so SOAP 1.1 states it as the faultcode.

    `ours`: whether the same request may be accepted later.
    """
    code = FaultCode.RECEIVER if ours else FaultCode.SENDER
    return SoapFaultError(
        code,
        reason,
        subcode=version.name("CreateSequenceRefused"),
        action=version.fault_action,
    )


def rm_required() -> SoapFaultError:
    """WSRMRequired: only messages of a sequence are accepted here (1.1)."""
    return SoapFaultError(
        FaultCode.SENDER,
        "A message of a Sequence is required.",
        subcode=RM11.name("WSRMRequired"),
        action=RM11.fault_action,
    )


def not_available(reason: str) -> SoapFaultError:
    """Nothing is accepted now; the same message may be sent again (503)."""
    return SoapFaultError(FaultCode.RECEIVER, reason, status=503, retry_after_s=_RETRY_AFTER_S)


def not_now(refusal: Refusal) -> str:
    """The reason of a refusal after which the same may be sent again."""
    away = refusal is Refusal.UNAVAILABLE
    return AWAY if away else f"not now: {refusal!s}"


def refused(version: RmVersion, identifier: str, refusal: Refusal) -> SoapFaultError:
    """The fault for a message or a request that a sequence refuses."""
    if refusal in _NOT_NOW:
        return not_available(not_now(refusal))
    match refusal:
        case Refusal.UNKNOWN:
            return unknown_sequence(version, identifier)
        case Refusal.OUT_OF_RANGE:
            return rollover(version, identifier)
        case Refusal.OUT_OF_REACH:
            # The only fault that says that a number is too high; its highest is not the point here.
            name = "MessageNumberRollover"
            reason = "The wsrm:MessageNumber is so far ahead that the Sequence cannot reach it."
        case Refusal.CLOSED if version.closes:
            name, reason = "SequenceClosed", "The Sequence is closed and accepts no new messages."
        case Refusal.GIVEN_UP | Refusal.TOO_MANY_GAPS if version.closes:
            name, reason = "SequenceClosed", _NEVER[refusal]
        case Refusal.GIVEN_UP | Refusal.TOO_MANY_GAPS:
            return terminated(version, identifier, _NEVER[refusal])
        case Refusal.BEYOND_LAST if not version.closes:
            name = "LastMessageNumberExceeded"
            reason = "The value for wsrm:MessageNumber exceeds the value of the last message."
        case Refusal.CLOSED | Refusal.FAILED | Refusal.TERMINATED:
            return terminated(version, identifier, "The Sequence has been terminated.")
        case _:
            return SoapFaultError(FaultCode.SENDER, f"the sequence refuses it: {refusal!s}")
    return _fault(version, name, reason, [_identifier(version, identifier)])


def _repeated(version: RmVersion, acknowledgement: _Element) -> _Element:
    """An acknowledgement of a peer as an element of ours, without what the protocol does not
    define: a copy would keep the names that the peer chose (see `instep_soap.vocabulary`).
    """
    element = Element(version.name("SequenceAcknowledgement"), nsmap={"r": version.namespace})
    for child in acknowledgement:
        local = local_name(str(child.tag))
        if child.tag == version.name(local) and local in _ACKNOWLEDGED:
            part = SubElement(element, child.tag)
            part.text = child.text
            for name in _ACKNOWLEDGED[local]:
                if (value := child.get(name)) is not None:
                    part.set(name, value)
    return element


def _fault(
    version: RmVersion, local: str, reason: str, detail: Sequence[_Element]
) -> SoapFaultError:
    """A fault about a header block: SOAP 1.1 states it in a block, SequenceFault."""
    block = Element(version.name("SequenceFault"), nsmap={"r": version.namespace})
    SubElement(block, version.name("FaultCode")).text = f"r:{local}"
    holder = SubElement(block, version.name("Detail")) if version is RM11 and detail else block
    holder.extend(deepcopy(one) for one in detail)
    return SoapFaultError(
        FaultCode.SENDER,
        reason,
        subcode=version.name(local),
        detail=detail,
        action=version.fault_action,
        header_11=block,
    )


def _identifier(version: RmVersion, identifier: str) -> _Element:
    element = Element(version.name("Identifier"))
    element.text = identifier
    return element
