"""Names the departures from DIDComm that the receiver accepts and counts."""

from __future__ import annotations

from typing import Final

__all__ = ["DEVIATIONS"]

DEVIATIONS: Final[dict[str, str]] = {
    "media-type": "the media type states another form than the content has (DIDComm 2.1, IANA)",
    "id-long": "an id of more than 32 characters (DIDComm 2.1, Message Headers)",
    "custom-headers-nested": "headers are nested under custom_headers (DIDComm 2.1, Extensibility)",
    "not-addressed": "a message without encryption names others in `to` (DIDComm 2.1, Headers)",
    "content-changed": "other content under one sender_order (Advanced Sequencing, sent_count)",
    "headers-changed": "a resend has other headers (Advanced Sequencing, sent_count)",
    "received-orders-wrong": "received_orders contradicts what was sent (Advanced Sequencing)",
}
"""Kind → its meaning, with the clause of the specification that it departs from."""
