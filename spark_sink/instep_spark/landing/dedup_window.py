"""Remembers the last rows of a stream, so that a record delivered again is not landed again. Pure.

The core drops what a reconnect brings again, but for the last record itself (a DELETE and its
TOMBSTONE may share one token), and applies what a provider repeats in between: for current state
that makes no difference. In a log of changes it would be a second change.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from instep.model.position import Position
from instep.model.records import Record

__all__ = ["REMEMBERED_RECORDS", "DedupWindow", "Identity", "identity_of"]

REMEMBERED_RECORDS: Final = 1_024
"""How many records back a repetition is recognized."""
_UNREAD_BYTES: Final = 8 << 20

Identity = tuple[str, int, str, str, str, int, int]
"""The fields that two copies of one record share."""


class DedupWindow:
    """The newest records landed in the attempt under way.

    A new attempt reads all of the log again, and its rows are the proof of what exists: they are
    new, whatever was landed before.
    """

    def __init__(self, attempt: int = 0, newest: Iterable[Identity] = ()) -> None:
        self._attempt = attempt
        self._newest = OrderedDict.fromkeys(newest)
        # Nearly always nobody asks: records wait here until somebody does.
        self._unread: deque[list[Record]] = deque()

    def without_repeats(
        self, records: Sequence[Record], before: Position, attempt: int
    ) -> Sequence[Record]:
        """Return the records that are not repetitions; `before` is the durable position."""
        at = _first_suspect(records, before.offsets if attempt == before.attempt else {})
        if at is None:
            return records
        self._read()
        known = set(self._newest) if attempt == self._attempt else set()
        known.update(map(identity_of, records[:at]))
        kept = list(records[:at])
        for record in records[at:]:
            identity = identity_of(record)
            # A row of a baseline is stated at another moment each time.
            if identity not in known or not record.token:
                kept.append(record)
                known.add(identity)
        return kept

    def remember(self, records: Sequence[Record], attempt: int) -> None:
        """Remember these records, which are durable."""
        if attempt != self._attempt:
            self._attempt = attempt
            self._newest.clear()
            self._unread.clear()
        last = [record for record in records[-REMEMBERED_RECORDS:] if record.token]
        self._unread.append(last)
        while sum(map(len, self._unread)) - len(self._unread[0]) >= REMEMBERED_RECORDS:
            self._unread.popleft()
        if sum(len(record.body) for part in self._unread for record in part) > _UNREAD_BYTES:
            self._read()

    def _read(self) -> None:
        for part in self._unread:
            for record in part:
                identity = identity_of(record)
                self._newest[identity] = None
                self._newest.move_to_end(identity)
        self._unread.clear()
        while len(self._newest) > REMEMBERED_RECORDS:
            self._newest.popitem(last=False)


def identity_of(record: Record) -> Identity:
    """Partition, offset, key, kind, token, append time, and a hash of the body."""
    return (
        record.partition,
        record.offset,
        record.key,
        record.kind.name,
        record.token,
        record.appended_at_us,
        hash(record.body),
    )


def _first_suspect(records: Sequence[Record], offsets: Mapping[str, int]) -> int | None:
    """Return the index of the first record that does not lie behind all before it."""
    highest = dict(offsets)
    for at, record in enumerate(records):
        if record.offset > highest.get(record.partition, -1):
            highest[record.partition] = record.offset
        else:
            return at
    return None
