"""Why a message is not taken, as one error that carries what each transport answers."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from instep.errors import InstepError
from instep.sequencing.transitions import Refusal

__all__ = ["MessageRefusedError", "Reason", "http_status"]


class Reason(StrEnum):
    """What was wrong with a message; stable, for machines."""

    UNREADABLE = "unreadable"
    """No DIDComm message at all, or a header that cannot be read."""
    TOO_BIG = "too-big"
    """me.res.storage.message_too_big."""
    MEDIA_TYPE = "media-type"
    NO_KEY = "wrong-recipient"
    """Encrypted for keys that we do not hold, or not addressed to the holder of the key."""
    TAMPERED = "tampered"
    """It cannot be decrypted, or a signature is wrong."""
    WRONG_SENDER = "wrong-sender"
    """`from` is not whose key encrypted or signed it."""
    UNAUTHENTICATED = "unauthenticated"
    """`from` is claimed and not proven, where proof is required."""
    UNRESOLVED = "unresolved"
    """The sender's DID is of a method that is not known here, or its document lacks the key."""
    NO_SENDER = "no-sender"
    """A protocol with order needs a sender; an anonymous message has none."""
    NO_ORDER = "no-order"
    """A protocol that is declared as sequenced, without `sender_order`."""
    EXPIRED = "expired"
    UNSUPPORTED = "unsupported"
    """An algorithm or envelope that we do not have."""


_STATUS = {
    Reason.TOO_BIG: 413,
    Reason.MEDIA_TYPE: 415,
    Reason.NO_KEY: 403,
    Reason.WRONG_SENDER: 403,
    Reason.UNAUTHENTICATED: 403,
    Reason.EXPIRED: 410,
}


class MessageRefusedError(InstepError):
    """A message that is not taken; it may be sent again only when it is another one."""

    code = "message-refused"

    def __init__(self, reason: Reason, message: str, **data: Any) -> None:
        super().__init__(message, reason=reason.value, **data)
        self.reason = reason

    @property
    def status(self) -> int:
        """The HTTP status that says so."""
        return _STATUS.get(self.reason, 400)


def http_status(refusal: Refusal) -> int:
    """The HTTP status for what the sequence refused: 503 may be sent again, 410 need not."""
    match refusal:
        case Refusal.FULL:
            return 503
        case (
            Refusal.UNPROCESSABLE
            | Refusal.OUT_OF_RANGE
            | Refusal.TOO_FAR_AHEAD
            | Refusal.TOO_MANY_GAPS
        ):
            return 400
        case _:
            return 410
