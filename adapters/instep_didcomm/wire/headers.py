"""Reads the headers of a plaintext message: tolerant where the meaning is clear, otherwise refusing
with a reason.

DIDComm Messaging 2.1, "Message Headers", and the Advanced Sequencing extension.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Annotated, Any
from zlib import crc32

import msgspec

from instep.model.conversion import converter
from instep.model.messages import CONTENT_BYTES
from instep.sequencing.settings import MAX_MESSAGE_NUMBER
from instep_didcomm.problems import MessageRefusedError, Reason
from instep_didcomm.wire.received_orders import GapDetector

__all__ = ["EMPTY_MESSAGE_TYPE", "Headers", "digest_of", "read_headers"]

EMPTY_MESSAGE_TYPE = "https://didcomm.org/empty/1.0/empty"
"""The type of a message without content: it carries headers only."""

_LONGEST = 255
_STATED_LONGEST = 32
_LONGEST_DID = 2048
_MAX_DETECTORS = 1000
_MAX_GAPS = 100_000
_MAX_RECIPIENTS = 1000
_LONGEST_TYPE = 2048
_VOLATILE = frozenset({"sent_count", "received_orders", "please_ack", "ack"})
"""Headers that may differ between two deliveries of one message."""
_RARE = frozenset({"pthid", "to", "custom_headers", "received_orders", "please_ack"})
_in_order = msgspec.json.Encoder(order="deterministic")
_gap_detectors = converter(list[GapDetector])


class Headers(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The headers of one message."""

    id: str
    type: str
    thid: str
    """The thread id; the message's own id if it begins a thread."""
    pthid: str = ""
    sender: str = ""
    """`from`: a DID without fragment; empty for an anonymous message."""
    to: tuple[str, ...] = ()
    created_time_s: int = 0
    """Since 1970 UTC; 0 where it is not stated."""
    expires_time_s: int = 0
    """Since 1970 UTC; 0 for never."""
    sender_order: int = 0
    """1, 2, …; 0 where it is not stated."""
    sent_count: int = 1
    received_orders: tuple[GapDetector, ...] = ()
    please_ack: bool = False
    """Whether the sender asks for `received_orders`."""


class _CommonHeaders(Headers, frozen=True, kw_only=True, gc=False):
    """The headers of nearly every message, decoded in one pass."""

    id: Annotated[str, msgspec.Meta(min_length=1, max_length=_STATED_LONGEST)]
    type: Annotated[str, msgspec.Meta(min_length=1, max_length=_LONGEST_TYPE)]
    thid: Annotated[str, msgspec.Meta(min_length=1, max_length=_LONGEST)]
    sender: Annotated[str, msgspec.Meta(min_length=1, max_length=_LONGEST_DID)] = msgspec.field(
        name="from"
    )
    sender_order: Annotated[int, msgspec.Meta(ge=1, le=MAX_MESSAGE_NUMBER)]
    sent_count: Annotated[int, msgspec.Meta(ge=1, le=MAX_MESSAGE_NUMBER)] = 1
    created_time_s: Annotated[int, msgspec.Meta(ge=0, le=MAX_MESSAGE_NUMBER)] = msgspec.field(
        name="created_time", default=0
    )
    expires_time_s: Annotated[int, msgspec.Meta(ge=0, le=MAX_MESSAGE_NUMBER)] = msgspec.field(
        name="expires_time", default=0
    )


_common_headers = converter(_CommonHeaders)


def read_headers(message: dict[str, Any], report_deviation: Callable[[str], object]) -> Headers:
    """Read the headers of a plaintext message; `report_deviation` is called with each deviation.

    Raises `MessageRefusedError`, which names the header.
    """
    return _read_common(message) or _read_any(message, report_deviation)


def _read_common(message: dict[str, Any]) -> Headers | None:
    """The headers; None if one has an unusual form, or if there are others."""
    if not _RARE.isdisjoint(message):
        return None
    try:
        common = _common_headers(message)
    except msgspec.ValidationError:
        return None
    sender = common.sender
    usual = (
        _printable(f"{common.id}{common.thid}{sender}")
        and sender.startswith("did:")
        and "#" not in sender
    )
    return common if usual else None


def _read_any(message: dict[str, Any], report_deviation: Callable[[str], object]) -> Headers:
    nested = message.get("custom_headers")
    if isinstance(nested, dict) and nested:
        report_deviation("custom-headers-nested")
        message = {**nested, **message}
    id = _name(message, "id", required=True)
    if len(id) > _STATED_LONGEST:
        report_deviation("id-long")
    sender = _text(message, "from", _LONGEST_DID).partition("#")[0]
    if sender and not (sender.startswith("did:") and _printable(sender)):
        raise _unreadable("from", "is no DID")
    return Headers(
        id=id,
        type=_text(message, "type", _LONGEST_TYPE, required=True),
        thid=_name(message, "thid") or id,
        pthid=_name(message, "pthid"),
        sender=sender,
        to=_recipients(message),
        created_time_s=_natural(message, "created_time"),
        expires_time_s=_natural(message, "expires_time"),
        sender_order=_order(message, "sender_order", absent=0),
        sent_count=_order(message, "sent_count", absent=1),
        received_orders=_detectors(message),
        please_ack=_wants_ack(message, id),
    )


def digest_of(message: dict[str, Any]) -> bytes:
    """The digest of the content, which with thread, sender and order (its sequence and number) is
    the message, and behind it that of the headers that every delivery of the message repeats
    (`MessageHeader.digest`), independent of how the JSON is written.
    """
    headers = message.copy()
    take = headers.pop
    content = (take("id", None), take("body", None), take("attachments", None))
    for name in _VOLATILE:
        take(name, None)
    nested = headers.get("custom_headers")
    if isinstance(nested, dict):
        lasting = {name: value for name, value in nested.items() if name not in _VOLATILE}
        headers["custom_headers"] = lasting
    told = crc32(_in_order.encode(headers))
    return sha256(_in_order.encode(content)).digest()[:CONTENT_BYTES] + told.to_bytes(4)


def _unreadable(name: str, what: str) -> MessageRefusedError:
    return MessageRefusedError(Reason.UNREADABLE, f"{name} {what}", header=name)


def _printable(text: str) -> bool:
    return text.isprintable() and " " not in text


def _text(message: dict[str, Any], name: str, longest: int, *, required: bool = False) -> str:
    value = message.get(name)
    if value is None and not required:
        return ""
    if not isinstance(value, str) or (required and not value):
        raise _unreadable(name, "is missing" if value in (None, "") else "is no text")
    if len(value) > longest:
        raise _unreadable(name, f"has more than {longest} characters")
    return value


def _name(message: dict[str, Any], name: str, *, required: bool = False) -> str:
    value = _text(message, name, _LONGEST, required=required)
    if not _printable(value):
        raise _unreadable(name, "has blanks or control characters")
    return value


def _recipients(message: dict[str, Any]) -> tuple[str, ...]:
    value = message.get("to")
    if value is None:
        return ()
    value = [value] if isinstance(value, str) else value
    if (
        not isinstance(value, list)
        or len(value) > _MAX_RECIPIENTS
        or not all(isinstance(did, str) and len(did) <= _LONGEST_DID for did in value)
    ):
        raise _unreadable("to", "is no list of DIDs")
    return tuple(did.partition("#")[0] for did in value)


def _natural(message: dict[str, Any], name: str) -> int:
    value = message.get(name)
    if value is None:
        return 0
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if (
        isinstance(value, bool)
        or not isinstance(value, int)
        or not 0 <= value <= MAX_MESSAGE_NUMBER
    ):
        raise _unreadable(name, "is no whole number from 0 on")
    return value


def _order(message: dict[str, Any], name: str, *, absent: int) -> int:
    if message.get(name) is None:
        return absent
    value = _natural(message, name)
    if value < 1:
        raise _unreadable(name, "counts from 1")
    return value


def _detectors(message: dict[str, Any]) -> tuple[GapDetector, ...]:
    value = message.get("received_orders")
    if value is None:
        return ()
    try:
        detectors = _gap_detectors(value)
    except msgspec.ValidationError:
        raise _unreadable("received_orders", "is no list of gap detectors") from None
    if len(detectors) > _MAX_DETECTORS:
        raise _unreadable("received_orders", f"has more than {_MAX_DETECTORS} gap detectors")
    if sum(len(detector.gaps) for detector in detectors) > _MAX_GAPS:
        raise _unreadable("received_orders", f"has more than {_MAX_GAPS:,} gaps")
    return tuple(detectors)


def _wants_ack(message: dict[str, Any], id: str) -> bool:
    """`please_ack`: a list of ids, the empty one for this message (DIDComm 2.1, ACKs)."""
    value = message.get("please_ack")
    return isinstance(value, list) and ("" in value or id in value)
