"""Reads a delivery as a numbered message: its JSON, number, scope and id, within bounds."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any, Final

import msgspec

from instep.errors import InstepError
from instep.model.messages import CONTENT_BYTES, Message
from instep.sequencing.settings import MAX_MESSAGE_NUMBER
from instep_broker.broker import Delivery
from instep_broker.fields import read_field
from instep_broker.options import BrokerOptions

__all__ = ["DeliveryDecoder", "UnreadableDeliveryError"]

_LONGEST: Final = 255
_decode: Final = msgspec.json.Decoder().decode
_in_order: Final = msgspec.json.Encoder(order="deterministic").encode
_encode: Final = msgspec.json.Encoder().encode


class UnreadableDeliveryError(InstepError):
    """A delivery that is no numbered message. Delivering it again does not help."""

    code = "unreadable-delivery"


class DeliveryDecoder:
    """Reads deliveries as `options` say. Raises `ConfigurationError` for a field that is none."""

    def __init__(self, options: BrokerOptions, where: str, now: Callable[[], float]) -> None:
        self._number = read_field(options.number, f"{where}.number")
        self._scope = read_field(options.scope, f"{where}.scope")
        self._id = read_field(options.id, f"{where}.id")
        self._longest = options.max_message_bytes
        self._now = now

    def decode(self, delivery: Delivery) -> Message:
        """The message. Raises `UnreadableDeliveryError`, which names what is wrong."""
        if len(delivery.body) > self._longest:
            raise UnreadableDeliveryError(f"its body has more than {self._longest:,} bytes")
        try:
            content = _decode(delivery.body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise UnreadableDeliveryError("its body is no JSON") from None
        id = self._id.of(delivery, content)
        return Message(
            scope=_name("scope", self._scope.of(delivery, content)),
            number=_whole(self._number.of(delivery, content)),
            id=delivery.position if id in (None, "") else _name("id", id),
            body=delivery.body,
            received_at_us=int(self._now() * 1_000_000),
            digest=sha256(_in_order(content)).digest()[:CONTENT_BYTES],
            attributes=_encode(
                {
                    "subject": delivery.subject,
                    "position": delivery.position,
                    "headers": dict(delivery.headers),
                }
            ),
        )


def _whole(value: Any) -> int:
    """A number, also where it is written as a text. Raises `UnreadableDeliveryError`."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= _LONGEST:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise UnreadableDeliveryError("it has no number" if value is None else "its number is none")
    if not 0 <= value <= MAX_MESSAGE_NUMBER:
        raise UnreadableDeliveryError("its number is out of range")
    return value


def _name(what: str, value: Any) -> str:
    """A text that can be a name. Raises `UnreadableDeliveryError`."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not value:
        raise UnreadableDeliveryError(f"it has no {what}")
    if len(value) > _LONGEST or not value.isprintable():
        raise UnreadableDeliveryError(f"its {what} is no name of up to {_LONGEST} characters")
    return value
