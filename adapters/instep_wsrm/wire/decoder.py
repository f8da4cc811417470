"""Reads what an envelope says about sequences: liberally, but never a number that was not meant.

Elements may be in any order. The range of a cancellation or a fill is read in all spellings of the
proposal: MessageRange, AcknowledgementRange, AcknowledgmentRange.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec
from lxml.etree import _Element

from instep_soap import (
    Envelope,
    FaultCode,
    SoapFaultError,
    first_children,
    local_name,
    namespace_of,
    read_duration_s,
    read_reference,
)
from instep_wsrm.wire.faults import invalid_acknowledgement, rollover
from instep_wsrm.wire.messages import (
    Acknowledgement,
    AckRequest,
    CloseSequence,
    CreateSequence,
    NumberRanges,
    Offer,
    Pairs,
    RmMessage,
    SequenceHeader,
    TerminateSequence,
)
from instep_wsrm.wire.names import ANY_RM, RmVersion

__all__ = ["is_rm", "read_rm", "read_rm_headers"]

_OURS: Final = tuple(f"{{{namespace}}}" for namespace in ANY_RM)
_NUMBER: Final = re.compile(r"\s*\+?0*(\d{1,20})\s*", re.ASCII)
_MAX_NUMBER: Final = 2**63 - 1
_UNSIGNED: Final = 2**64
_MAX_IDENTIFIER_CHARS: Final = 1_024
_RANGES: Final = frozenset({"MessageRange", "AcknowledgementRange", "AcknowledgmentRange"})
_BODIES: Final = frozenset({"CreateSequence", "CloseSequence", "TerminateSequence"})


def read_rm(envelope: Envelope) -> RmMessage:
    """Read the headers and the body. Raises `SoapFaultError` for what cannot be meant."""
    read = read_rm_headers(envelope)
    if not envelope.body or not is_rm(envelope.body[0]):
        return read
    name = str(envelope.body[0].tag)
    version = _same_version(read.version, name)
    body = _body(local_name(name), envelope.body[0])
    return msgspec.structs.replace(read, version=version, body=body)


def is_rm(element: _Element) -> bool:
    """Whether an element is of WS-ReliableMessaging."""
    return str(element.tag).startswith(_OURS)


def read_rm_headers(envelope: Envelope) -> RmMessage:
    """Read the headers. Raises `SoapFaultError` for what cannot be meant."""
    version: RmVersion | None = None
    blocks: dict[str, list[_Element]] = {}
    for block in envelope.headers:
        name = str(block.tag)
        if name.startswith(_OURS):
            version = _same_version(version, name)
            blocks.setdefault(local_name(name), []).append(block)
    if version is None:
        return RmMessage(version=None)
    sequences = blocks.pop("Sequence", [])
    if len(sequences) > 1:
        raise _malformed("more than one Sequence header")
    read = RmMessage(
        version=version,
        sequence=_sequence(version, sequences[0]) if sequences else None,
    )
    if not blocks:
        # Nearly every message has no other header.
        return read
    return msgspec.structs.replace(
        read,
        cancels=tuple(map(_ranges, blocks.get("SequenceCancel", ()))),
        fills=tuple(map(_fill, blocks.get("SequenceFill", ()))),
        ack_requests=tuple(map(_ack_request, blocks.get("AckRequested", ()))),
        acknowledgements=tuple(
            _acknowledgement(version, block) for block in blocks.get("SequenceAcknowledgement", ())
        ),
    )


def _same_version(version: RmVersion | None, name: str) -> RmVersion:
    found = ANY_RM[namespace_of(name)]
    if version is not found and version is not None:
        raise _malformed("two versions of WS-ReliableMessaging in one envelope")
    return found


def _body(name: str, block: _Element) -> CreateSequence | CloseSequence | TerminateSequence:
    if name not in _BODIES:
        raise _malformed(f"{name} is no request to a destination")
    if name == "CreateSequence":
        return _create(block)
    identifier, last = _identifier(block), _child(block, "LastMsgNumber")
    number = None if last is None else _number(last.text, "LastMsgNumber")
    if name == "CloseSequence":
        return CloseSequence(identifier, number)
    return TerminateSequence(identifier, number)


def _create(block: _Element) -> CreateSequence:
    acks_to, offered = _child(block, "AcksTo"), _child(block, "Offer")
    if acks_to is None:
        raise _malformed("CreateSequence without AcksTo")
    offer = None
    if offered is not None:
        endpoint = _child(offered, "Endpoint")
        offer = Offer(
            _identifier(offered),
            None if endpoint is None else read_reference(endpoint),
            _expires_s(offered),
        )
    return CreateSequence(read_reference(acks_to), _expires_s(block), offer)


def _sequence(version: RmVersion, block: _Element) -> SequenceHeader:
    parts = first_children(block)
    identifier = _identifier(block, parts.get(version.name("Identifier")))
    stated = parts.get(version.name("MessageNumber"))
    fill = tuple(_message_ranges(block))
    number = None
    if stated is not None:
        number = _number(stated.text, "MessageNumber")
        if number > _MAX_NUMBER:
            raise rollover(version, identifier)
    elif not fill:
        raise _malformed("Sequence without MessageNumber")
    last = version.name("LastMessage") in parts
    return SequenceHeader(identifier, number, last and number is not None, fill)


def _ranges(block: _Element) -> NumberRanges:
    """SequenceCancel (proposal 2)."""
    return NumberRanges(_identifier(block), _message_ranges(block))


def _fill(block: _Element) -> NumberRanges:
    """SequenceFill (proposal 5), in each spelling of its ranges."""
    ranges, stated = _message_ranges(block), _child(block, "MessageNumber")
    if stated is not None:
        number = _number(stated.text, "MessageNumber")
        ranges.append((number, number))
    return NumberRanges(_identifier(block), ranges)


def _ack_request(block: _Element) -> AckRequest:
    """AckRequested (WS-RM 3.8)."""
    used = _child(block, "MaxMessageNumberUsed")
    number = None if used is None else _number(used.text, "MaxMessageNumberUsed")
    return AckRequest(_identifier(block), number or None)


def _acknowledgement(version: RmVersion, block: _Element) -> Acknowledgement:
    try:
        identifier = _identifier(block)
        ranges = _message_ranges(block)
        nacks = [_number(one.text, "Nack") for one in _children(block, "Nack")]
    except SoapFaultError as fault:
        raise invalid_acknowledgement(version, fault.message, block) from None
    final = _child(block, "Final") is not None
    return Acknowledgement(identifier, ranges, nacks, final, block)


def _message_ranges(block: _Element) -> Pairs:
    pairs = []
    for one in block:
        if local_name(str(one.tag)) in _RANGES:
            low, high = _number(one.get("Lower"), "Lower"), _number(one.get("Upper"), "Upper")
            if low > high:
                raise _malformed(f"a range from {low} to {high}")
            pairs.append((low, high))
    return pairs


def _number(text: str | None, where: str) -> int:
    """A number from 1 on (xs:unsignedLong)."""
    found = _NUMBER.fullmatch(text or "")
    number = int(found[1]) if found else 0
    if not 0 < number < _UNSIGNED:
        raise _malformed(f"{where} is {(text or '')[:30]!r} and no number from 1 on")
    return number


def _identifier(block: _Element, found: _Element | None = None) -> str:
    found = _child(block, "Identifier") if found is None else found
    text = "" if found is None else (found.text or "").strip()
    if not 0 < len(text) <= _MAX_IDENTIFIER_CHARS:
        raise _malformed(f"{local_name(str(block.tag))} without a usable Identifier")
    return text


def _expires_s(block: _Element) -> float | None:
    found = _child(block, "Expires")
    if found is None:
        return None
    seconds = read_duration_s(found.text or "")
    if seconds is None:
        raise _malformed(f"Expires is {(found.text or '')[:30]!r} and no duration")
    return seconds


def _child(block: _Element, local: str) -> _Element | None:
    return next(_children(block, local), None)


def _children(block: _Element, local: str) -> Iterator[_Element]:
    name = f"{{{namespace_of(str(block.tag))}}}{local}"
    return block.iterchildren(name)


def _malformed(reason: str) -> SoapFaultError:
    return SoapFaultError(FaultCode.SENDER, reason)
