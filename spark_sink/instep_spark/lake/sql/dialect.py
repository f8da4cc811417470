"""Where Spark and DataFusion spell one thing in two ways."""

from __future__ import annotations

from typing import Final

import msgspec

__all__ = ["DATAFUSION", "SPARK", "Dialect"]


class Dialect(msgspec.Struct, frozen=True):
    """The SQL of one engine."""

    last: str
    time: str

    def last_of(self, value: str, by: str) -> str:
        """SQL, an aggregate: the value in the row with the largest `by`."""
        return self.last.format(value, by)

    def time_of(self, at_us: int) -> str:
        """SQL for a time in microseconds since 1970."""
        return self.time.format(at_us)


SPARK: Final = Dialect("max_by({}, {})", "timestamp_micros({})")
DATAFUSION: Final = Dialect("last_value({} ORDER BY {})", "to_timestamp_micros({})")
