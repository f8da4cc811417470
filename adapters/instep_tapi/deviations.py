"""The deviations from TR-548 that the reader understands and counts."""

from __future__ import annotations

from typing import Final

__all__ = ["DEVIATIONS"]

DEVIATIONS: Final[dict[str, str]] = {
    "needless-prefix": "a member carries the module prefix of its parent (RFC 7951 4)",
    "identity-spelling": "an identity is not written as the YANG names it (TR-548 3.10)",
    "identity-blanks": "an identity has blanks around it (RFC 7951 6.8)",
    "event-time-nested": "event-time-stamp wraps approx-date-and-time (TR-548 3.10)",
    "event-time-missing": "no event-time-stamp in a record body: mandatory (TR-548 3.10)",
    "parent-address-missing": "no parent-address of an entity below another one (TR-548 3.10)",
    "parent-address-spelling": "a parent-address not as <class>-uuid:<uuid> (TR-548 3.10)",
    "parent-address-order": "a parent-address not from the highest element down (TR-548 3.10)",
    "time-without-zone": "a time names no zone; it is taken as UTC (RFC 3339 5.6)",
    "leap-second": "a leap second, read as the last microsecond before it (RFC 3339 5.7)",
    "hour-24": "the hour 24, read as the beginning of the next day (RFC 3339 5.6)",
    "epoch-time": "a time is written as a number since 1970 (RFC 3339 5.6)",
    "zone-name": "a time names its zone behind the offset (RFC 9557), which RFC 3339 does not have",
    "byte-order-mark": "a byte order mark before JSON (RFC 8259 8.1)",
    "needless-comma": "a comma behind the last member or item of JSON (RFC 8259 4, 5)",
    "several-documents": "several JSON documents in one frame (TR-548 5.10)",
    "no-record": "a text without a log-record, such as a heartbeat (TR-548 5.10)",
    "number-for-text": "a number stands where the YANG has a string (TR-548 3.10)",
    "offset-missing": "full-log-record-offset-id states no offset (TR-548 3.10, min-elements 1)",
    "offset-unreadable": "the stated offset is not a whole number (TR-548 3.10)",
    "record-type-unknown": "an unknown record-type, read as CREATE_UPDATE (TR-548 3.10)",
    "record-content-missing": "no record-content in a record body: mandatory (TR-548 3.10)",
    "class-unknown": "a class that TAPI 2.1.3 does not know; it is kept (TR-548 3.10)",
    "container-other": "the entity is not under the member of its class (TR-548 3.10)",
    "authenticity-missing": "no record-authenticity-token where it is checked (TR-548 3.10)",
    "authenticity-failed": "a record-authenticity-token does not fit its record (TR-548 3.10)",
    "severity-against-state": "a legacy severity is CLEARED, its detector is not (TR-548 4.4)",
    "retention-below-delay": "tombstone-retention is below compaction-delay (TR-548 4.3.4)",
    "key-shared": "two classes have one entity-key in a stream, where it is unique, or one uuid"
    " that the stream uses as a key (TR-548 3.10)",
    "uuid-case": "one uuid is spelled in upper and in lower case (RFC 4122 3)",
    "create-update-part": "a CREATE_UPDATE that states little, where it is whole (v3.2 5.2);"
    " where it is a part, set tapi = 2.1.3",
    "detector-state-unknown": "a detector state of no edition; it counts as ACTIVE (v3.2 4.5.2)",
    "change-without-entity": "a CHANGE of an entity that a realignment has not stated (v3.2 5.2)",
    "container-missing": "a class without container is stated without content (TR-548 3.10)",
}
"""Kind → what it means and the clause it departs from."""
