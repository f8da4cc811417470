"""Writes envelopes of WS-Reliability, in the order of its schema. It has no WS-Addressing."""

from __future__ import annotations

from collections.abc import Iterable

from lxml.etree import Element, SubElement, _Element

from instep_soap import (
    SoapVersion,
    header_envelope,
    new_envelope,
    write_datetime,
    write_duration,
    xml_bytes,
    xml_value,
)
from instep_wsr.wire.messages import GroupReply, PollRequest, Request
from instep_wsr.wire.names import WSR, ReplyPattern, wsr_name

__all__ = ["envelope", "poll_request", "request", "response", "response_envelope"]


def envelope(
    version: SoapVersion, headers: Iterable[_Element], content: _Element | None = None
) -> bytes:
    """An envelope with header blocks, and an element of the application in its Body."""
    root, header, _ = new_envelope(version, None, prefixes={"wsrm": WSR})
    for block in headers:
        block.set(version.name("mustUnderstand"), "1")
        header.append(block)
    return xml_bytes(root, content)


def response(replies: Iterable[GroupReply]) -> _Element:
    """Response: replies, each with at least one number."""
    element = _element("Response")
    for reply in replies:
        if reply.sequenced:
            group = SubElement(element, wsr_name("SequenceReplies"), {"groupId": reply.group_id})
            for low, high in reply.acknowledged:
                _reply_range(group, low, high)
            for low, high, code in reply.faults:
                _reply_range(group, low, high).set("fault", f"wsrm:{code}")
        else:
            one = SubElement(element, wsr_name("NonSequenceReply"), {"groupId": reply.group_id})
            for _, _, code in reply.faults:
                one.set("fault", f"wsrm:{code}")
    return element


def response_envelope(version: SoapVersion, replies: Iterable[GroupReply]) -> bytes:
    """`envelope` with the `response`, as the same bytes, faster: see `header_envelope`."""
    written = "".join([_written(reply) for reply in replies])
    block = f'<wsrm:Response s:mustUnderstand="1">{written}</wsrm:Response>'
    return header_envelope(version, None, block, prefix="wsrm", namespace=WSR)


def _written(reply: GroupReply) -> str:
    group = f'groupId="{xml_value(reply.group_id)}"'
    if reply.sequenced:
        ranges = [
            f'<wsrm:ReplyRange from="{low}" to="{high}"/>' for low, high in reply.acknowledged
        ]
        ranges += [
            f'<wsrm:ReplyRange from="{low}" to="{high}" fault="wsrm:{code}"/>'
            for low, high, code in reply.faults
        ]
        return f"<wsrm:SequenceReplies {group}>{''.join(ranges)}</wsrm:SequenceReplies>"
    fault = f' fault="wsrm:{reply.faults[-1][2]}"' if reply.faults else ""
    return f"<wsrm:NonSequenceReply {group}{fault}/>"


def request(message: Request) -> _Element:
    """Request, as a sender writes it."""
    element = _element("Request")
    identified = SubElement(element, wsr_name("MessageId"), {"groupId": message.group_id})
    if message.number is not None:
        number = SubElement(identified, wsr_name("SequenceNum"), {"number": str(message.number)})
        if message.last:
            number.set("last", "true")
        if message.group_expires_at_us:
            number.set("groupExpiryTime", write_datetime(message.group_expires_at_us))
        if message.group_max_idle_s is not None:
            number.set("groupMaxIdleDuration", write_duration(message.group_max_idle_s))
    SubElement(element, wsr_name("ExpiryTime")).text = write_datetime(message.expires_at_us)
    pattern = SubElement(element, wsr_name("ReplyPattern"))
    SubElement(pattern, wsr_name("Value")).text = message.pattern
    if message.pattern is ReplyPattern.CALLBACK:
        _write_reply_to(pattern, message.reply_to)
    for stated, local in (
        (message.ack_requested, "AckRequested"),
        (message.duplicate_elimination, "DuplicateElimination"),
        (message.message_order, "MessageOrder"),
    ):
        if stated:
            SubElement(element, wsr_name(local))
    return element


def poll_request(poll: PollRequest) -> _Element:
    """PollRequest, as a sender writes it."""
    element = _element("PollRequest")
    for group in poll.groups:
        asked = SubElement(element, wsr_name("RefToMessageIds"), {"groupId": group.group_id})
        for low, high in group.ranges:
            SubElement(asked, wsr_name("SequenceNumRange"), {"from": str(low), "to": str(high)})
    if poll.reply_to:
        _write_reply_to(element, poll.reply_to)
    return element


def _element(local: str) -> _Element:
    return Element(wsr_name(local), nsmap={"wsrm": WSR})


def _write_reply_to(parent: _Element, address: str) -> None:
    holder = SubElement(parent, wsr_name("ReplyTo"))
    SubElement(holder, wsr_name("BareURI")).text = address


def _reply_range(parent: _Element, low: int, high: int) -> _Element:
    return SubElement(parent, wsr_name("ReplyRange"), {"from": str(low), "to": str(high)})
