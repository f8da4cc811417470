"""What a stranger reaches of a SOAP listener before a sequence or a group is looked up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from instep_soap import (
    SOAP12,
    Envelope,
    SoapFaultError,
    XmlError,
    XmlLimits,
    check_understood,
    fault_of,
    read_envelope,
    read_xml,
    xml_bytes,
)
from instep_soap.addressing import Addressing, read_addressing
from instep_soap.envelope import fault_envelope
from instep_wsr.wire import encoder
from instep_wsr.wire.decoder import read_headers
from instep_wsr.wire.faults import RmFaultError, soap_fault
from instep_wsr.wire.messages import GroupReply
from instep_wsrm.wire.decoder import read_rm

__all__ = ["SOAP_TARGETS"]

_LIMITS: Final = XmlLimits(max_depth=16, max_elements=200)
_MOST: Final = 2**63 - 1


def xml(data: bytes) -> None:
    """Any document is within the bounds and declares no type, or is refused in our terms."""
    try:
        root = read_xml(data, _LIMITS)
    except XmlError:
        return
    elements = list(root.iter())
    assert len(elements) <= _LIMITS.max_elements
    assert all(isinstance(element.tag, str) for element in elements)
    assert sum(1 for _ in elements[-1].iterancestors()) < _LIMITS.max_depth
    assert root.getroottree().docinfo.internalDTD is None


def wsrm(data: bytes) -> None:
    """Any envelope is read as what it says of sequences, or refused by a fault."""
    envelope = _envelope(data)
    if envelope is None:
        return
    try:
        read = read_rm(envelope)
    except SoapFaultError as fault:
        _check_fault(fault, envelope)
        return
    if read.sequence is not None:
        number = read.sequence.number
        assert 0 < len(read.sequence.identifier) <= 1_024
        assert number is None or 0 < number <= _MOST
    for one in (*read.cancels, *read.fills):
        assert all(0 < low <= high < 2**64 for low, high in one.ranges)


def wsr(data: bytes) -> None:
    """Any envelope is read as what it says of groups, or refused by a reply or a fault."""
    envelope = _envelope(data)
    if envelope is None:
        return
    try:
        headers = read_headers(envelope)
    except RmFaultError as error:
        reply = error.reply()
        if reply is None:
            _check_fault(soap_fault(error), envelope)
        else:
            _check_reply(reply, envelope)
        return
    request, poll = headers.request, headers.poll
    if request is not None:
        number = request.number or 0
        assert 0 <= number <= _MOST
        assert 0 <= request.expires_at_us < 2**63
        assert request.group_max_idle_s is None or request.group_max_idle_s > 0
        ranges = [(number, number)]
        _check_reply(
            GroupReply(request.group_id, request.number is not None, acknowledged=ranges), envelope
        )
    for group in poll.groups if poll is not None else ():
        assert all(0 <= low <= high <= _MOST for low, high in group.ranges)


def _envelope(data: bytes) -> Envelope | None:
    """The envelope with its addressing read; None: it is refused by a fault."""
    envelope, addressing = None, Addressing()
    try:
        envelope = read_envelope(data, _LIMITS)
        addressing = read_addressing(envelope.headers)
        check_understood(envelope, lambda _: True)
    except SoapFaultError as fault:
        _check_fault(fault, envelope, addressing)
        return None
    fault_of(envelope)
    content = envelope.content()
    if content:
        read_xml(content, XmlLimits())
    return envelope


def _check_fault(
    fault: SoapFaultError, envelope: Envelope | None, addressing: Addressing | None = None
) -> None:
    """Whoever gets the fault can read it."""
    assert fault.message
    version = envelope.version if envelope is not None else SOAP12
    wsa = addressing.version if addressing is not None else None
    root = fault_envelope(
        fault, version, wsa, relates_to=addressing.message_id if addressing else ""
    )
    read = fault_of(read_envelope(xml_bytes(root)))
    assert read is not None
    assert read.fault_code is fault.fault_code


def _check_reply(reply: GroupReply, envelope: Envelope) -> None:
    """A response is one for the group that was named, whatever its name is."""
    raw = encoder.response_envelope(envelope.version, [reply])
    assert raw == encoder.envelope(envelope.version, [encoder.response([reply])])
    (block,) = read_envelope(raw).headers
    assert block[0].get("groupId") == reply.group_id


SOAP_TARGETS: Final[dict[str, Callable[[bytes], None]]] = {"xml": xml, "wsrm": wsrm, "wsr": wsr}
