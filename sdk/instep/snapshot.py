"""Tells when a snapshot of current state is over, and the log itself goes on (TR-548 3.19.2). Pure.

A log that emulates compaction begins with current state, read page by page while it changes: what
has changed comes with its new time before older entities that have not, and looks like the head of
the log. Nothing marks the end of it. Three things show that the end has passed:

- an end that was appended since the opening: current state holds none;
- the first record that was appended since the opening comes again: the log states what the snapshot
  has shown already, and a snapshot shows an entity once;
- for long, nothing came that was appended before the opening.

A silence shows it too, as it does in every log.
"""

from __future__ import annotations

from collections.abc import Sequence

from instep.records import Kind, Statement

__all__ = ["Snapshot"]

_Identity = tuple[str, str, int, int]


class Snapshot:
    """What a stream begins with that was opened from its start. Times in microseconds."""

    def __init__(self, opened_us: int) -> None:
        self._opened_us = opened_us
        self.old_us = opened_us
        """When what was appended before the opening last came."""
        self.ended = False
        """Whether it is shown to be over."""
        self._first: _Identity | None = None
        """The first record appended since."""
        self._last: _Identity | None = None

    def follow(self, records: Sequence[Statement], now_us: int) -> None:
        """These came."""
        if self.ended:
            return
        for record in records:
            identity = (record.key, record.partition, record.offset, record.appended_at_us)
            if record.appended_at_us <= self._opened_us or self._last is None:
                self.old_us = now_us
            else:
                # Twice in a row is no repetition, but a frame that was sent twice.
                repeats = identity == self._first and identity != self._last
                self.ended = self.ended or repeats or record.kind is not Kind.CREATE_UPDATE
            if record.appended_at_us > self._opened_us:
                self._first = self._first or identity
            self._last = identity
