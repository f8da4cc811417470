"""`measurements`: periods of measurement as series (TR-548 3.9.2.6, 3.9.2.7)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Annotated, ClassVar, Final

import msgspec

from instep.model.records import Record
from instep.ports.derivation import (
    Changes,
    Column,
    ColumnType,
    Query,
    ReplaceRule,
    Row,
    StatementDerivation,
    Statements,
    StatementTable,
    View,
    ViewColumn,
)
from instep.ports.reader import StoreReader
from instep_tapi.facts.periods import MEASURING, Period, read_periods

__all__ = ["Measurement", "MeasurementOptions", "Measurements", "derivation", "measurements"]

_NAME: Final = "instep_measurement"
_TABLE: Final = StatementTable(
    name=_NAME,
    columns=(
        Column("series"),
        # 0 where it is not stated: it tells series of one measured thing apart.
        Column("length_us", ColumnType.LONG),
        Column("end_us", ColumnType.LONG),
        # Of the statement.
        Column("key"),
        Column("class"),
        Column("complete", ColumnType.FLAG),
        Column("suspect", ColumnType.FLAG, nullable=True),
        Column("lineage", ColumnType.INTEGER),
        Column("appended_at_us", ColumnType.LONG),
        Column("body", ColumnType.BYTES),
    ),
    key=("series", "length_us", "end_us"),
    # What was measured in the middle of a period never takes the place of what was measured at its
    # end; otherwise the later statement counts (A3).
    replaced=ReplaceRule("complete", "appended_at_us", "lineage"),
    retention="measurement_retention_records",
    # A pm-current-data contains the periods of four hours.
    most_rows=100,
)
_VIEW: Final = View(
    "instep_measurements",
    _NAME,
    (
        ViewColumn("series", "r.series"),
        ViewColumn("key", "r.key"),
        ViewColumn("class", "r.class"),
        ViewColumn("period_end", "r.end_us", "time"),
        ViewColumn("period_begin", "r.end_us - r.length_us", "time"),
        ViewColumn("length_s", "r.length_us / 1e6"),
        ViewColumn("complete", "r.complete", "flag"),
        ViewColumn("suspect", "r.suspect", "flag"),
        ViewColumn("stated_at", "r.appended_at_us", "time"),
        ViewColumn("body", "r.body", "json"),
    ),
)
_QUERY: Final = Query(
    f"""
    SELECT r.*, s.consumer, s.stream
    FROM {_NAME} AS r JOIN instep_stream AS s ON s.id = r.stream_no WHERE {{more}}
    """,
    {
        "consumer": "s.consumer = :consumer",
        "stream": "s.stream = :stream",
        "series": "r.series = :series",
        "since_us": "r.end_us >= :since_us",
        "until_us": "r.end_us < :until_us",
    },
    {
        "stream_no": ("r.stream_no", -1),
        "series": ("r.series", ""),
        "length_us": ("r.length_us", 0),
        "end_us": ("r.end_us", 0),
    },
)


class MeasurementOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of a sink that keeps series of measurements."""

    measurements: bool | None = None
    """Whether the store keeps periods of measurement as series (`instep_measurement`), for all its
    consumers; None: as it does already, and a new store does not."""
    measurement_retention_records: Annotated[int, msgspec.Meta(ge=1)] = 10_000_000
    """The number of newest periods kept, of all series together."""


class Measurements(StatementDerivation):
    """One row for each period of a series. What ends an entity ends no series: history-data that a
    provider has dropped stays here.
    """

    name = "measurements"
    version = "1"
    words = "series of measurements"
    classes = MEASURING
    options = MeasurementOptions
    tables = (_TABLE,)
    views = (_VIEW,)
    queries: ClassVar[Mapping[str, Query]] = {"": _QUERY}

    def derive(self, statements: Statements, before: Mapping[str, Sequence[Row]]) -> Changes:
        """The periods that these statements have: of several of one period, the one that counts."""
        del before
        latest: dict[tuple[str, int, int], tuple[Period, Record]] = {}
        for record in statements.records:
            for one in read_periods(record):
                key = (one.series, one.length_us, one.end_us)
                known = latest.get(key)
                if known is None or _replaces(one, record, *known):
                    latest[key] = one, record
        rows = [
            (
                *(one.series, one.length_us, one.end_us, record.key, record.entity_class),
                *(int(one.complete), None if one.suspect is None else int(one.suspect)),
                *(statements.lineage, record.appended_at_us, one.body),
            )
            for one, record in latest.values()
        ]
        return Changes({_NAME: rows})


derivation: Final = Measurements()


def _replaces(one: Period, record: Record, known: Period, by: Record) -> bool:
    """As `ReplaceRule` within one lineage."""
    if one.complete is not known.complete:
        return one.complete
    return record.appended_at_us >= by.appended_at_us


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured in one period, as it was stated last.

    Times are in microseconds since 1970.
    """

    consumer: str
    stream: str
    series: str
    """What the period is one of: the ids of the pm-current-data from the nearest uuid down, such as
    `{uuid of the oam-job}/{local-id}`; the own ids of a pm-history-data that has no parent-address.
    """
    key: str
    """The entity-key of the statement."""
    entity_class: str
    """PM_HISTORY_DATA, PM_CURRENT_DATA or OAM_JOB: the class of the statement."""
    end_us: int
    """`period-end-time`, or `timestamp` and `granularity-period` of a pm-current-data."""
    length_us: int
    """`granularity-period`; 0 where it is not stated, or is of months or years."""
    complete: bool
    """Whether the period was over when this was measured."""
    suspect: bool | None
    """`suspect-interval-flag`; None: not stated."""
    stated_at_us: int
    """Append time of the statement."""
    body: bytes
    """The pm-history-data or pm-current-data as JSON, without the periods that it contains."""

    @property
    def begin_us(self) -> int:
        """When the period began; its end where its length is not known."""
        return self.end_us - self.length_us


async def measurements(
    reader: StoreReader,
    *,
    series: str | None = None,
    since_us: int | None = None,
    until_us: int | None = None,
    consumer: str | None = None,
    stream: str | None = None,
) -> AsyncIterator[Measurement]:
    """Periods of measurement, one series after another, each in the order of time: those that end
    at `since_us` or later and before `until_us`, in microseconds since 1970.

    Raises `DerivationOffError` where they are not kept, `ConfigurationError` for a store that
    cannot keep them.
    """
    rows = reader.derived(
        derivation.name,
        series=series,
        since_us=since_us,
        until_us=until_us,
        consumer=consumer,
        stream=stream,
    )
    async for row in rows:
        yield Measurement(
            consumer=row["consumer"],
            stream=row["stream"],
            series=row["series"],
            key=row["key"],
            entity_class=row["class"],
            end_us=row["end_us"],
            length_us=row["length_us"],
            complete=bool(row["complete"]),
            suspect=None if row["suspect"] is None else bool(row["suspect"]),
            stated_at_us=row["appended_at_us"],
            body=bytes(row["body"]),
        )
