"""Where a message of a broker has its number, scope and id."""

from __future__ import annotations

from typing import Any

import msgspec

from instep.errors import ConfigurationError
from instep_broker.broker import Delivery

__all__ = ["MessageField", "read_field"]

_EXAMPLES = "member:order.number, header:Nats-Msg-Id, subject, or subject:2"


class MessageField(msgspec.Struct, frozen=True):
    """One value of a message: a member of its JSON, a header, or a part of its subject."""

    kind: str
    path: tuple[str, ...] = ()
    token: int = 0
    """Which part of the subject counts, the first is 1; 0 for the whole."""

    def of(self, delivery: Delivery, content: Any) -> Any:
        """The value; None where the message has none. `content` is the JSON of the body."""
        if self.kind == "header":
            return delivery.headers.get(self.path[0])
        if self.kind == "subject":
            if not self.token:
                return delivery.subject
            parts = delivery.subject.split(".")
            return parts[self.token - 1] if self.token <= len(parts) else None
        for name in self.path:
            content = content.get(name) if isinstance(content, dict) else None
        return content


def read_field(text: str, where: str) -> MessageField:
    """The field that an option names. Raises `ConfigurationError`."""
    kind, colon, rest = text.partition(":")
    if kind == "subject" and not colon:
        return MessageField("subject")
    if kind == "subject" and rest.isascii() and rest.isdigit() and int(rest) > 0:
        return MessageField("subject", token=int(rest))
    if kind == "header" and rest and rest.isprintable() and " " not in rest:
        return MessageField("header", (rest,))
    if kind == "member" and all(rest.split(".")):
        return MessageField("member", tuple(rest.split(".")))
    raise ConfigurationError(f"{text!r} names no field", where=where, hint=f"write {_EXAMPLES}")
