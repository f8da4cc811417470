"""Names the departures from WS-ReliableMessaging that the destination accepts and counts."""

from __future__ import annotations

from typing import Final

__all__ = ["DEVIATIONS"]

DEVIATIONS: Final[dict[str, str]] = {
    "addressing-missing": "no MessageID or no Action (WS-RM 1.1, 3.1; WS-Addressing 3.2)",
    "content-changed": "other content under one MessageNumber (WS-RM 1.1, 3.7)",
    "headers-changed": "a copy has another MessageID or Action (WS-Addressing 1.0, 3.2)",
    "sequence-of-other-version": "a sequence is used in another version than it was created in",
    "acknowledges-unknown": "SequenceAcknowledgement of a sequence that we do not send in",
}
"""Kind → its meaning, with the clause of the specification that it departs from."""
