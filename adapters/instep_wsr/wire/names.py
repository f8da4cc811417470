"""The names of WS-Reliability 1.1, and its fault codes."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

__all__ = ["HEADERS", "WSR", "ReplyPattern", "RmFaultCode", "wsr_name"]

WSR: Final = "http://docs.oasis-open.org/wsrm/2004/06/ws-reliability-1.1.xsd"
"""The namespace; it does end in ``.xsd``."""

HEADERS: Final = frozenset({"Request", "Response", "PollRequest"})
"""The header blocks that a receiver understands."""


class ReplyPattern(StrEnum):
    """Where acknowledgements and faults of a message go (ReplyPattern/Value)."""

    RESPONSE = "Response"
    """Into the HTTP response of the message."""
    CALLBACK = "Callback"
    """To the address that the message states."""
    POLL = "Poll"
    """Into the response of a PollRequest."""


class RmFaultCode(StrEnum):
    """Why a message is not accepted, or was not delivered (@fault). The first six say that a header
    is malformed or contradicts its group.
    """

    INVALID_REQUEST = "InvalidRequest"
    INVALID_POLL_REQUEST = "InvalidPollRequest"
    INVALID_MESSAGE_ID = "InvalidMessageId"
    INVALID_MESSAGE_PARAMETERS = "InvalidMessageParameters"
    INVALID_REPLY_PATTERN = "InvalidReplyPattern"
    INVALID_EXPIRY_TIME = "InvalidExpiryTime"
    FEATURE_NOT_SUPPORTED = "FeatureNotSupported"
    """Something that is not offered here."""
    PERMANENT_PROCESSING_FAILURE = "PermanentProcessingFailure"
    """The message will never be delivered."""
    MESSAGE_PROCESSING_FAILURE = "MessageProcessingFailure"
    """The message was not accepted now, and may be sent again."""
    GROUP_ABORTED = "GroupAborted"
    """The group has ended; none of its further messages is delivered."""


def wsr_name(local: str) -> str:
    """The name of an element, as lxml writes it."""
    return f"{{{WSR}}}{local}"
