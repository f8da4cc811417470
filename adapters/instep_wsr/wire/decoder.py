"""Reads the headers of WS-Reliability: in any order of elements, but never what was not meant."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from lxml.etree import _Element

from instep_soap import (
    Envelope,
    first_children,
    local_name,
    read_datetime_us,
    read_duration_s,
)
from instep_wsr.wire.faults import RmFaultError
from instep_wsr.wire.messages import Pairs, PolledGroup, PollRequest, Request, WsrHeaders
from instep_wsr.wire.names import ReplyPattern, RmFaultCode, wsr_name

__all__ = ["read_headers"]

_OURS: Final = wsr_name("")
_NUMBER: Final = re.compile(r"\s*\+?0*(\d{1,20})\s*", re.ASCII)
_MAX_NUMBER: Final = 2**63 - 1
_MAX_ID_CHARS: Final = 512
_MAX_URI_CHARS: Final = 2_048
_MAX_POLLED: Final = 1_000
_TRUE: Final = frozenset({"true", "1"})
_FALSE: Final = frozenset({"false", "0", ""})
_CODE: Final = RmFaultCode


def read_headers(envelope: Envelope) -> WsrHeaders:
    """Read the headers. Raises `RmFaultError` for what cannot be meant."""
    blocks: dict[str, _Element] = {}
    for block in envelope.headers:
        name = str(block.tag)
        if not name.startswith(_OURS):
            continue
        local = local_name(name)
        if local in blocks:
            raise RmFaultError(_CODE.INVALID_REQUEST, f"{local} is there twice")
        blocks[local] = block
    request, poll = blocks.get("Request"), blocks.get("PollRequest")
    return WsrHeaders(
        None if request is None else _request(request),
        None if poll is None else _poll(poll),
        "Response" in blocks,
    )


def _request(block: _Element) -> Request:
    parts = first_children(block)
    identified = parts.get(wsr_name("MessageId"))
    if identified is None:
        raise RmFaultError(_CODE.INVALID_REQUEST, "Request without MessageId")
    group_id = _group_id(identified, _CODE.INVALID_MESSAGE_ID)
    sequence = _child(identified, "SequenceNum")
    number = None if sequence is None else _sequence_number(sequence, group_id)
    try:
        return _read_request(parts, group_id, sequence, number)
    except RmFaultError as error:
        raise RmFaultError(error.fault, error.message, group_id, number) from None


def _read_request(
    parts: dict[str, _Element], group_id: str, sequence: _Element | None, number: int | None
) -> Request:
    last, group_expires_at_us, group_max_idle_s = False, 0, None
    if sequence is not None:
        last, group_expires_at_us, group_max_idle_s = _parameters(sequence)
    pattern, reply_to = _reply_pattern(parts.get(wsr_name("ReplyPattern")))
    expiry = parts.get(wsr_name("ExpiryTime"))
    if expiry is None:
        raise RmFaultError(_CODE.INVALID_REQUEST, "Request without ExpiryTime")
    expires_at_us = read_datetime_us(expiry.text or "")
    if expires_at_us is None:
        raise RmFaultError(_CODE.INVALID_EXPIRY_TIME, f"ExpiryTime is {_shown(expiry.text)}")
    return Request(
        group_id=group_id,
        number=number,
        last=last,
        group_expires_at_us=group_expires_at_us,
        group_max_idle_s=group_max_idle_s,
        expires_at_us=expires_at_us,
        pattern=pattern,
        reply_to=reply_to,
        ack_requested=wsr_name("AckRequested") in parts,
        duplicate_elimination=wsr_name("DuplicateElimination") in parts,
        message_order=wsr_name("MessageOrder") in parts,
    )


def _sequence_number(sequence: _Element, group_id: str) -> int:
    number = _number(sequence.get("number"))
    if number is None:
        raise RmFaultError(
            _CODE.INVALID_MESSAGE_ID,
            f"SequenceNum/@number is {_shown(sequence.get('number'))}",
            group_id,
        )
    return number


def _parameters(sequence: _Element) -> tuple[bool, int, float | None]:
    """`last`, groupExpiryTime and groupMaxIdleDuration of a SequenceNum."""
    last = (sequence.get("last") or "").strip()
    if last not in _TRUE | _FALSE:
        raise _parameter("last", last)
    expiry, idle = sequence.get("groupExpiryTime"), sequence.get("groupMaxIdleDuration")
    if expiry is not None and idle is not None:
        raise RmFaultError(
            _CODE.INVALID_MESSAGE_PARAMETERS, "both groupExpiryTime and groupMaxIdleDuration"
        )
    expires_at_us, max_idle_s = 0, None
    if expiry is not None:
        read = read_datetime_us(expiry)
        if not read:
            raise _parameter("groupExpiryTime", expiry)
        expires_at_us = read
    if idle is not None:
        max_idle_s = read_duration_s(idle)
        if not max_idle_s:
            raise _parameter("groupMaxIdleDuration", idle)
    return last in _TRUE, expires_at_us, max_idle_s


def _reply_pattern(stated: _Element | None) -> tuple[ReplyPattern, str]:
    """The reply pattern, and the address of a callback."""
    if stated is None:
        raise RmFaultError(_CODE.INVALID_REQUEST, "Request without ReplyPattern")
    value = _child(stated, "Value")
    text = "" if value is None else (value.text or "").strip()
    pattern = next((one for one in ReplyPattern if one == text), None)
    if pattern is None:
        raise RmFaultError(_CODE.INVALID_REPLY_PATTERN, f"ReplyPattern/Value is {_shown(text)}")
    if pattern is not ReplyPattern.CALLBACK:
        return pattern, ""
    return pattern, _reply_to(stated, _CODE.INVALID_REPLY_PATTERN, required=True)


def _reply_to(parent: _Element, code: RmFaultCode, *, required: bool) -> str:
    element = _child(parent, "ReplyTo")
    if element is None and not required:
        return ""
    address = None if element is None else _child(element, "BareURI")
    text = "" if address is None else (address.text or "").strip()
    if not 0 < len(text) <= _MAX_URI_CHARS:
        raise RmFaultError(code, "a ReplyTo with a BareURI is needed")
    return text


def _poll(block: _Element) -> PollRequest:
    groups = [_polled(one) for one in _children(block, "RefToMessageIds")]
    if not 0 < len(groups) <= _MAX_POLLED:
        raise _poll_fault(f"from one to {_MAX_POLLED:,} RefToMessageIds are needed")
    return PollRequest(groups, _reply_to(block, _CODE.INVALID_POLL_REQUEST, required=False))


def _polled(block: _Element) -> PolledGroup:
    ranges: Pairs = []
    for one in _children(block, "SequenceNumRange"):
        low, high = _number(one.get("from")), _number(one.get("to"))
        if low is None or high is None or low > high:
            raise _poll_fault(f"a range from {_shown(one.get('from'))} to {_shown(one.get('to'))}")
        ranges.append((low, high))
    return PolledGroup(_group_id(block, _CODE.INVALID_POLL_REQUEST), ranges)


def _group_id(element: _Element, code: RmFaultCode) -> str:
    text = (element.get("groupId") or "").strip()
    if not 0 < len(text) <= _MAX_ID_CHARS or not text.isprintable():
        raise RmFaultError(code, f"groupId is {_shown(text)}")
    return text


def _number(text: str | None) -> int | None:
    """A number from 0 (xs:unsignedLong) to 2^63-1; None: it is none."""
    found = _NUMBER.fullmatch(text or "")
    number = int(found[1]) if found else -1
    return number if 0 <= number <= _MAX_NUMBER else None


def _child(block: _Element, local: str) -> _Element | None:
    return next(_children(block, local), None)


def _children(block: _Element, local: str) -> Iterator[_Element]:
    return block.iterchildren(wsr_name(local))


def _parameter(name: str, text: str) -> RmFaultError:
    return RmFaultError(_CODE.INVALID_MESSAGE_PARAMETERS, f"SequenceNum/@{name} is {_shown(text)}")


def _poll_fault(reason: str) -> RmFaultError:
    return RmFaultError(_CODE.INVALID_POLL_REQUEST, reason)


def _shown(text: str | None) -> str:
    return repr((text or "")[:60])
