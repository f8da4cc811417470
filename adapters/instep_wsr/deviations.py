"""Names the departures from WS-Reliability that the receiver accepts and counts."""

from __future__ import annotations

from typing import Final

__all__ = ["DEVIATIONS"]

DEVIATIONS: Final[dict[str, str]] = {
    "content-changed": "other content under one message identifier (WS-Reliability 1.1, MessageId)",
    "headers-changed": "a copy has another ExpiryTime (WS-Reliability 1.1, ExpiryTime)",
    "reply-to-nothing": "Response to a message that we did not send (WS-Reliability 1.1, Response)",
}
"""Kind → its meaning, with the clause of the specification that it departs from."""
