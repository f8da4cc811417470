"""Numbered messages as data: as received, as the sequencer sees them, as delivered to a store."""

from __future__ import annotations

import msgspec

__all__ = [
    "CONTENT_BYTES",
    "UNSEQUENCED",
    "Attachment",
    "Message",
    "MessageHeader",
    "StoredMessage",
]

CONTENT_BYTES = 16
"""The bytes of a digest that tell whether two messages are the same."""


class MessageHeader(msgspec.Struct, gc=False):
    """The data of a message that the sequencer needs. Adapters may subclass it to carry the
    message.
    """

    number: int
    digest: bytes = b""
    """A digest of the content (S7); empty if contents are not compared. What follows after
    `CONTENT_BYTES` is a digest of headers that every copy repeats: with others it is the same
    message, and a deviation.
    """
    size_bytes: int = 0
    expires_at_us: int = 0
    """The sender's deadline for delivery (S6); 0 for none."""


UNSEQUENCED = -1
"""The number of a message that belongs to no sequence: it passes through, once by its id."""


class Attachment(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What came with a message, beside its body (SOAP with Attachments, MTOM)."""

    content_id: str
    """What the body names it by, without brackets: ``cid:…`` there, where some characters are
    written as ``%xx``. Empty: it has no name.
    """
    content_type: str
    """As its sender states it; empty: nothing is stated."""
    content: bytes
    """As its sender had it: what a transfer encoding changed is undone."""
    headers: dict[str, str] = {}
    """The other headers that its sender wrote to it: name in lower case → value."""


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One message as received; never edited."""

    scope: str
    """One numbered sequence, as the adapter names it; unique within the consumer."""
    number: int = UNSEQUENCED
    """Its place in the scope; `UNSEQUENCED` where it has none."""
    id: str
    """The sender's own identifier; what makes an unsequenced message one within its scope."""
    body: bytes
    """The plaintext, as received."""
    received_at_us: int
    """Our clock, microseconds since 1970."""
    expires_at_us: int = 0
    """The sender's deadline for delivery; 0 for none."""
    digest: bytes = b""
    """See `MessageHeader.digest`."""
    sender: str = ""
    attributes: bytes = b"{}"
    """A JSON object: whatever else the adapter wants kept (type, thread, content type …)."""
    attachments: tuple[Attachment, ...] = ()
    """What came with it, in the order of its sender."""

    @property
    def size_bytes(self) -> int:
        """Its bytes, with those of its attachments."""
        size_bytes = len(self.body)
        if self.attachments:
            size_bytes += sum(len(one.content) for one in self.attachments)
        return size_bytes


class StoredMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A delivered message; reading goes on after its `cursor`."""

    cursor: int
    """Grows in the order of delivery."""
    stream: str
    """The scope: one numbered sequence."""
    number: int
    """-1: it belongs to no sequence."""
    id: str
    sender: str
    received_at_us: int
    delivered_at_us: int
    body: bytes
    attributes: bytes = b"{}"
    attachments: tuple[Attachment, ...] = ()
    consumer: str = ""
