"""The error of a refused message, with its reason and what each transport responds."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from instep.errors import InstepError
from instep.sequencing.transitions import Refusal

__all__ = ["MessageRefusedError", "Reason", "http_status", "refusal_text"]


class Reason(StrEnum):
    """Why a message is refused; the values are stable, for programs."""

    UNREADABLE = "unreadable"
    """Not a DIDComm message, or a header that cannot be read."""
    TOO_BIG = "too-big"
    """me.res.storage.message_too_big."""
    MEDIA_TYPE = "media-type"
    NO_KEY = "wrong-recipient"
    """Encrypted for keys that we do not hold, or not addressed to the holder of the key."""
    TAMPERED = "tampered"
    """It cannot be decrypted, or a signature is wrong."""
    WRONG_SENDER = "wrong-sender"
    """`from` is not the owner of the key that encrypted or signed the message."""
    UNAUTHENTICATED = "unauthenticated"
    """`from` is not proven by a key, and proof is required."""
    UNRESOLVED = "unresolved"
    """The sender's DID is of a method that is not known here, or its document lacks the key."""
    NO_SENDER = "no-sender"
    """The message of a sequenced protocol is anonymous; a sequence needs a sender."""
    NO_ORDER = "no-order"
    """The message of a sequenced protocol has no `sender_order`."""
    EXPIRED = "expired"
    UNSUPPORTED = "unsupported"
    """An algorithm or envelope that is not supported."""


_STATUS = {
    Reason.TOO_BIG: 413,
    Reason.MEDIA_TYPE: 415,
    Reason.NO_KEY: 403,
    Reason.WRONG_SENDER: 403,
    Reason.UNAUTHENTICATED: 403,
    Reason.EXPIRED: 410,
}


class MessageRefusedError(InstepError):
    """A refused message. Sending the same message again does not help."""

    code = "message-refused"

    def __init__(self, reason: Reason, message: str, **data: Any) -> None:
        super().__init__(message, reason=reason.value, **data)
        self.reason = reason

    @property
    def status(self) -> int:
        """The HTTP status of the response."""
        return _STATUS.get(self.reason, 400)


def http_status(refusal: Refusal) -> int:
    """The HTTP status for a refusal of the sequencer: 503 may be sent again, 410 need not."""
    match refusal:
        case Refusal.FULL | Refusal.TOO_FAR_AHEAD | Refusal.UNAVAILABLE:
            return 503
        case (
            Refusal.UNPROCESSABLE
            | Refusal.OUT_OF_RANGE
            | Refusal.OUT_OF_REACH
            | Refusal.TOO_MANY_GAPS
        ):
            return 400
        case _:
            return 410


def refusal_text(refusal: Refusal) -> str:
    """What the sender is told beside the status."""
    if refusal is Refusal.UNAVAILABLE:
        return "the store is unavailable: send it again later"
    return f"the sequence: {refusal!s}"
