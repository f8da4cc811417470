"""Writes the elements of WS-ReliableMessaging, in the order of their schemas."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lxml.etree import Element, SubElement, _Element

from instep_soap import EndpointReference, write_duration, write_reference, xml_text
from instep_wsrm.wire.messages import Pairs
from instep_wsrm.wire.names import RmVersion

__all__ = [
    "ack_requested",
    "acknowledgement",
    "acknowledgement_text",
    "cancel",
    "cancel_acknowledgement",
    "close_sequence",
    "create_response",
    "create_sequence",
    "fill",
    "identified",
    "nacks",
    "sequence",
    "terminate_sequence",
]


def identified(version: RmVersion, local: str, identifier: str) -> _Element:
    """An element that names a sequence first: SequenceCancel and the like."""
    element = Element(version.name(local), nsmap={"r": version.namespace})
    SubElement(element, version.name("Identifier")).text = identifier
    return element


# -- what a destination sends ----------------------------------------------------------------------


def acknowledgement(
    version: RmVersion, identifier: str, ranges: Iterable[tuple[int, int]], *, final: bool
) -> _Element | None:
    """SequenceAcknowledgement of these ranges. Without any, 1.1 says None, and 1.0 has no way to
    say it: the result is None.
    """
    element = identified(version, "SequenceAcknowledgement", identifier)
    _write_ranges(version, element, "AcknowledgementRange", ranges)
    if len(element) == 1:
        if not version.closes:
            return None
        SubElement(element, version.name("None"))
    if final and version.closes:
        SubElement(element, version.name("Final"))
    return element


def acknowledgement_text(
    version: RmVersion, identifier: str, ranges: Iterable[tuple[int, int]], *, final: bool
) -> str:
    """`acknowledgement` as text, with the prefix ``r``, for `header_envelope`; empty where that is
    None.
    """
    said = "".join(
        [f'<r:AcknowledgementRange Lower="{low}" Upper="{high}"/>' for low, high in ranges]
    )
    if not said:
        if not version.closes:
            return ""
        said = "<r:None/>"
    if final and version.closes:
        said += "<r:Final/>"
    return (
        f"<r:SequenceAcknowledgement><r:Identifier>{xml_text(identifier)}</r:Identifier>{said}"
        "</r:SequenceAcknowledgement>"
    )


def nacks(version: RmVersion, identifier: str, numbers: Sequence[int]) -> _Element:
    """SequenceAcknowledgement that only names missing numbers; at least one."""
    element = identified(version, "SequenceAcknowledgement", identifier)
    for number in numbers:
        SubElement(element, version.name("Nack")).text = str(number)
    return element


def cancel_acknowledgement(
    version: RmVersion, identifier: str, ranges: Iterable[tuple[int, int]]
) -> _Element:
    """SequenceCancelAcknowledgement: every number of the sequence that was cancelled."""
    element = identified(version, "SequenceCancelAcknowledgement", identifier)
    _write_ranges(version, element, "AcknowledgementRange", ranges)
    return element


def create_response(
    version: RmVersion,
    identifier: str,
    expires_s: float,
    *,
    incomplete: str = "",
    accept: EndpointReference | None = None,
) -> _Element:
    """CreateSequenceResponse. `accept`: where the source acknowledges the sequence that it offered;
    None: the offer is declined, or there was none. `incomplete` is of 1.1.
    """
    element = identified(version, "CreateSequenceResponse", identifier)
    SubElement(element, version.name("Expires")).text = write_duration(expires_s)
    if incomplete and version.closes:
        SubElement(element, version.name("IncompleteSequenceBehavior")).text = incomplete
    if accept is not None:
        accepted = SubElement(element, version.name("Accept"))
        write_reference(accepted, version.name("AcksTo"), accept)
    return element


# -- what a source sends ---------------------------------------------------------------------------


def create_sequence(
    version: RmVersion,
    acks_to: EndpointReference,
    *,
    expires_s: float | None = None,
    offer: str = "",
) -> _Element:
    """CreateSequence; `offer` is the identifier of a sequence for the replies."""
    element = Element(version.name("CreateSequence"), nsmap={"r": version.namespace})
    write_reference(element, version.name("AcksTo"), acks_to)
    if expires_s is not None:
        SubElement(element, version.name("Expires")).text = write_duration(expires_s)
    if offer:
        offered = SubElement(element, version.name("Offer"))
        SubElement(offered, version.name("Identifier")).text = offer
        if version.closes:
            write_reference(offered, version.name("Endpoint"), acks_to)
    return element


def sequence(version: RmVersion, identifier: str, number: int, *, last: bool = False) -> _Element:
    """Sequence; `last` is LastMessage of 1.0."""
    element = identified(version, "Sequence", identifier)
    SubElement(element, version.name("MessageNumber")).text = str(number)
    if last and not version.closes:
        SubElement(element, version.name("LastMessage"))
    return element


def ack_requested(version: RmVersion, identifier: str, highest: int | None = None) -> _Element:
    """AckRequested; `highest` is MaxMessageNumberUsed of 1.0."""
    element = identified(version, "AckRequested", identifier)
    if highest is not None and not version.closes:
        SubElement(element, version.name("MaxMessageNumberUsed")).text = str(highest)
    return element


def cancel(version: RmVersion, identifier: str, ranges: Pairs) -> _Element:
    """SequenceCancel."""
    element = identified(version, "SequenceCancel", identifier)
    _write_ranges(version, element, "MessageRange", ranges)
    return element


def fill(version: RmVersion, identifier: str, ranges: Pairs) -> _Element:
    """SequenceFill."""
    element = identified(version, "SequenceFill", identifier)
    _write_ranges(version, element, "MessageRange", ranges)
    return element


def close_sequence(version: RmVersion, identifier: str, last_number: int | None) -> _Element:
    """CloseSequence (1.1)."""
    return _ending(version, "CloseSequence", identifier, last_number)


def terminate_sequence(version: RmVersion, identifier: str, last_number: int | None) -> _Element:
    """TerminateSequence; only 1.1 states the last number."""
    return _ending(version, "TerminateSequence", identifier, last_number)


def _ending(version: RmVersion, local: str, identifier: str, last_number: int | None) -> _Element:
    element = identified(version, local, identifier)
    if last_number is not None and version.closes:
        SubElement(element, version.name("LastMsgNumber")).text = str(last_number)
    return element


def _write_ranges(
    version: RmVersion, parent: _Element, local: str, ranges: Iterable[tuple[int, int]]
) -> None:
    for low, high in ranges:
        SubElement(parent, version.name(local), {"Lower": str(low), "Upper": str(high)})
