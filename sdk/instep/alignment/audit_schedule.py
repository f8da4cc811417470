"""When the streams of a consumer are audited without being asked (A12). Pure."""

from __future__ import annotations

from collections.abc import Collection
from math import inf
from typing import Final

__all__ = ["AuditSchedule"]

_HOUR_S: Final = 3_600.0
_AGAIN_S: Final = 60.0
"""A pass that came to nothing is tried again after so long, or after a tenth of the interval."""


class AuditSchedule:
    """Which stream is audited next. A pass compares all of a stream, so a share of its entities an
    hour is a whole pass from time to time; at least two passes fit into the tombstone retention,
    as long as what is wrong can still be told from what has ended. Times are seconds of one
    monotonic clock.
    """

    def __init__(self, share: float) -> None:
        """`share` of the entities an hour; 0: none are audited."""
        self.share = share
        self._due_s: dict[str, float] = {}

    def every_s(self, retention_s: float | None) -> float:
        """The time between two passes of a stream with this tombstone retention (None: none is
        declared); infinite: it is not audited.
        """
        if not self.share:
            return inf
        return min(_HOUR_S / self.share, (retention_s or inf) / 2)

    def follow(self, streams: dict[str, float | None], now_s: float) -> None:
        """These streams are followed now: id → tombstone retention. Those that are new have their
        first pass after half of an interval.
        """
        for id_, retention_s in streams.items():
            self._due_s.setdefault(id_, now_s + self.every_s(retention_s) / 2)
        for id_ in self._due_s.keys() - streams.keys():
            del self._due_s[id_]

    def due(self, ready: Collection[str], now_s: float) -> str | None:
        """The stream of these whose pass is the most overdue; None: none is due."""
        found = [(at_s, id_) for id_, at_s in self._due_s.items() if id_ in ready and at_s <= now_s]
        return min(found)[1] if found else None

    def passed(self, stream: str, retention_s: float | None, now_s: float) -> None:
        """A pass of this stream is done."""
        self._due_s[stream] = now_s + self.every_s(retention_s)

    def put_off(self, stream: str, retention_s: float | None, now_s: float) -> None:
        """A pass of this stream came to nothing: an alignment began, or an error."""
        self._due_s[stream] = now_s + min(_AGAIN_S, self.every_s(retention_s) / 10)

    def leave_out(self, stream: str) -> None:
        """This stream cannot be audited."""
        self._due_s[stream] = inf
