"""The rows that `format("instep")` gives, and which of them a reader has chosen."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["CHANGE_SCHEMA", "CHANGE_SCHEMA_DDL", "ChangeFilter", "to_microseconds"]

_MOMENT: Final = pa.timestamp("us", tz="UTC")
CHANGE_SCHEMA_DDL: Final = (
    "cursor BIGINT NOT NULL, consumer STRING NOT NULL, stream STRING NOT NULL, "
    "key STRING NOT NULL, class STRING NOT NULL, change STRING NOT NULL, kind STRING, "
    "token STRING NOT NULL, appended_at TIMESTAMP NOT NULL, committed_at TIMESTAMP NOT NULL, "
    "body STRING, previous STRING"
)
CHANGE_SCHEMA: Final = pa.schema(
    [
        ("cursor", pa.int64()),
        *((name, pa.string()) for name in ("consumer", "stream", "key", "class")),
        *((name, pa.string()) for name in ("change", "kind", "token")),
        ("appended_at", _MOMENT),
        ("committed_at", _MOMENT),
        ("body", pa.string()),
        ("previous", pa.string()),
    ]
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def to_microseconds(moment: datetime) -> int:
    """Microseconds since 1970 of a time with a zone."""
    passed = moment - _EPOCH
    return (passed.days * 86_400 + passed.seconds) * 1_000_000 + passed.microseconds


class ChangeFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which changes are read. None: all."""

    consumers: frozenset[str] | None = None
    streams: frozenset[str] | None = None
    classes: frozenset[str] | None = None
    since_us: int | None = None
    """From this append time on, in microseconds since 1970."""
    until_us: int | None = None
    """Before this append time."""

    def narrowed(self, other: ChangeFilter) -> ChangeFilter:
        """What both choose."""
        return ChangeFilter(
            consumers=_both(self.consumers, other.consumers),
            streams=_both(self.streams, other.streams),
            classes=_both(self.classes, other.classes),
            since_us=max(
                (t for t in (self.since_us, other.since_us) if t is not None), default=None
            ),
            until_us=min(
                (t for t in (self.until_us, other.until_us) if t is not None), default=None
            ),
        )

    def predicate(self) -> str:
        """SQL over the columns `consumer`, `stream` and `class`."""
        return " AND ".join(
            f"{column} IN ({', '.join(map(_literal, sorted(names)))})" if names else "false"
            for column, names in self._names()
            if names is not None
        )

    def apply(self, rows: pa.Table) -> pa.Table:
        """The rows, of those of `CHANGE_SCHEMA`, that are chosen."""
        for column, names in self._names():
            if names is not None:
                rows = rows.filter(pc.is_in(rows[column], pa.array(sorted(names), pa.string())))
        if self.since_us is not None:
            since = pa.scalar(self.since_us, pa.int64()).cast(_MOMENT)
            rows = rows.filter(pc.greater_equal(rows["appended_at"], since))
        if self.until_us is not None:
            until = pa.scalar(self.until_us, pa.int64()).cast(_MOMENT)
            rows = rows.filter(pc.less(rows["appended_at"], until))
        return rows

    def _names(self) -> Iterator[tuple[str, frozenset[str] | None]]:
        yield "consumer", self.consumers
        yield "stream", self.streams
        yield "class", self.classes


def _both(one: frozenset[str] | None, other: frozenset[str] | None) -> frozenset[str] | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other


def _literal(value: str) -> str:
    quoted = value.replace("'", "''")
    return f"'{quoted}'"
