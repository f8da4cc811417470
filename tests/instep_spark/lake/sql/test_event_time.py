"""What an envelope says of its event time, in each of its spellings; independent of the SQL."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pytest

from instep_spark.lake.sql.event_time import EVENT_DETAILS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A JVM starts, and may share the machine.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

_AT: Final = "2026-11-25T15:52:53.387Z"
_TIME: Final = datetime(2026, 11, 25, 15, 52, 53, 387_000, tzinfo=UTC)
_Details = tuple[datetime | None, str | None, str | None]
_NONE: Final[_Details] = (None, None, None)
_MEMBERS: Final = {
    "primary-time-stamp": _AT,
    "start-time-stamp": _AT,
    "spread": "SPREAD_AT",
    "source-precision": "tapi-common:SOURCE_PRECISION_SYNCHRONIZED",
}
_ALL: Final[_Details] = (_TIME, "AT", "SYNCHRONIZED")


def _stamped(stamp: Any) -> str:
    return json.dumps({"event-time-stamp": stamp, "record-content": "NODE"})


_SPELLED: Final[list[tuple[str | None, _Details]]] = [
    (None, _NONE),
    ("{}", _NONE),
    (_stamped(_AT), _NONE),
    (_stamped(_MEMBERS), _ALL),
    (_stamped({"approx-date-and-time": _MEMBERS}), _ALL),
    # Flat comes before nested.
    (
        _stamped({"spread": "BEFORE", "approx-date-and-time": _MEMBERS}),
        (_TIME, "BEFORE", "SYNCHRONIZED"),
    ),
    (_stamped({"primary-time-stamp": _AT, "spread": "AT"}), (None, "AT", None)),
    # The same names at another place say nothing of the time.
    (json.dumps({"event-time-stamp": {"primary-time-stamp": _AT}, "more": _MEMBERS}), _NONE),
    (json.dumps({"event-time-stamp": _AT, "parent": '"spread":"AT"'}), _NONE),
]


def test_each_spelling_gives_start_spread_and_precision(spark: SparkSession) -> None:
    rows = spark.createDataFrame(
        [(at, envelope) for at, (envelope, _) in enumerate(_SPELLED)], "at INT, envelope STRING"
    )
    start = f"unix_micros({EVENT_DETAILS['event_start_at']}) AS start_us"
    spread, precision = EVENT_DETAILS["event_spread"], EVENT_DETAILS["event_precision"]
    found = rows.selectExpr("at", start, f"{spread} AS spread", f"{precision} AS precision")
    for row in found.collect():
        start_at, *details = _SPELLED[row.at][1]
        start_us = None if start_at is None else round(start_at.timestamp() * 1_000_000)
        assert [row.start_us, row.spread, row.precision] == [start_us, *details], _SPELLED[row.at]
