"""Stream tokens: opaque to the client, to the provider a place in one log and its time.

The shape is that of tokens seen in the field, ``62234255_0:-1379579382:AAAAAQAAhw4=``: colons and
base64, so a client that does not percent-encode it, or that splits it, is found out.
"""

import base64
import struct
from dataclasses import dataclass

# Signed: the place before the first record of a log that is empty.
_TAIL = struct.Struct(">BqQ")
_AT_RECORD = 1
_IN_SNAPSHOT = 2


@dataclass(frozen=True, slots=True)
class Place:
    """Where a token points: a record's ordinal in its log, and when that record was appended.

    `in_snapshot`: the record was sent from a snapshot of current state that was not complete after
    it.
    """

    ordinal: int
    appended_ms: int
    in_snapshot: bool = False


class Tokens:
    """Makes and reads the tokens of one log; a token of any other log is unknown to it."""

    def __init__(self, log_id: int) -> None:
        self._stem = f"{log_id & 0x7FFFFFFF}_"
        # A signed 32-bit number in the middle, as in the field: here a second half of the log's
        # identity.
        self._middle = f":{((log_id >> 31) & 0xFFFFFFFF) - 0x80000000}:"

    def encode(
        self, ordinal: int, appended_ms: int, partition: int, *, in_snapshot: bool = False
    ) -> str:
        """The token of one record."""
        kind = _IN_SNAPSHOT if in_snapshot else _AT_RECORD
        tail = base64.b64encode(_TAIL.pack(kind, ordinal, appended_ms)).decode()
        return f"{self._stem}{partition}{self._middle}{tail}"

    def decode(self, token: str) -> Place | None:
        """Where the token points, or None when it is not a token of this log."""
        head, found, tail = token.partition(self._middle)
        if not found or not head.startswith(self._stem):
            return None
        try:
            kind, ordinal, appended_ms = _TAIL.unpack(base64.b64decode(tail, validate=True))
        except (ValueError, struct.error):
            return None
        return Place(ordinal, appended_ms, in_snapshot=kind == _IN_SNAPSHOT)
