"""What of a stream can be read, connection by connection (A11). Pure.

A record that cannot be read costs that record (A11). Many in a row are another matter: a compressed
WebSocket that has lost a message inflates each later one to something else, and only another
connection ends that. So they end the connection: the stream is opened again after the last record
that was read, or from its oldest where readable records came between them, and what was lost lies
before the position. Where the same comes again from the oldest record, it is the records that are
so, and they are read past.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from instep.model.records import Unreadable

__all__ = ["Readability"]

_ROW: Final = 20
"""So many unreadable texts in a row end a connection …"""
_SHARE: Final = 0.5
"""… and this share of all that it has brought …"""
_SHARE_OF: Final = 100
"""… where at least so many of them could not be read."""
_REMEMBERED: Final = 10_000
"""Unreadable texts of an attempt that are known again, and counted once."""


class Readability:
    """Counts what could be read of one stream."""

    def __init__(self) -> None:
        self.refused = 0
        """Records refused since the opening."""
        self.readable = 0
        """Records read since the opening."""
        self.reason = ""
        """Why the last one was refused."""
        self._row = 0
        self._mixed = False
        """Whether a record was read after one that was refused."""
        self._step = 0
        """0: nothing is wrong; 1: opened again from the last good position; 2: from the oldest;
        then what cannot be read is read past.
        """
        self._known: set[str] = set()

    @property
    def nothing_readable(self) -> bool:
        """Whether all that has come since the opening was refused."""
        return bool(self.refused) and not self.readable

    def opened(self) -> None:
        """A connection begins: what it brings is counted from here."""
        self.refused = self.readable = self._row = 0
        self.reason = ""
        self._mixed = False

    def attempt_begun(self) -> None:
        """An attempt reads everything anew, and counts what it cannot read."""
        self._known.clear()

    def caught_up(self) -> None:
        """The connection has read to the end of its log."""
        self._step = 0

    def received(self, readable: int, unreadable: Sequence[Unreadable]) -> int:
        """Note a delivery. Returns how many of its unreadable texts the attempt had not met."""
        if readable:
            self._mixed = self._mixed or bool(self.refused)
            self.readable += readable
            self._row = 0
        if not unreadable:
            return 0
        self.refused += len(unreadable)
        if not readable:
            self._row += len(unreadable)
        self.reason = unreadable[-1].reason
        new = 0
        for one in unreadable:
            if one.digest not in self._known:
                new += 1
                if len(self._known) < _REMEMBERED:
                    self._known.add(one.digest)
        return new

    def broken(self) -> tuple[str, bool] | None:
        """Why the connection is to end, and whether the stream is then read from its oldest record.

        None: it goes on.
        """
        total = self.refused + self.readable
        share = self.refused >= _SHARE_OF and self.refused > total * _SHARE
        if self._step >= 2 or not (self._row >= _ROW or share):
            return None
        self._step = 2 if self._mixed or self._step else 1
        of = f"{self.refused:,} of {total:,} records of the connection cannot be read"
        return f"{of}: {self.reason}", self._step > 1
