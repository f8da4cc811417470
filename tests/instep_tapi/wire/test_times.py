"""Times and durations in the spellings of the field."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep_tapi.wire.times import duration_s, epoch_us, read_time


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("20211102223713.0-0500", datetime(2021, 11, 3, 3, 37, 13, tzinfo=UTC)),
        ("20211102223713Z", datetime(2021, 11, 2, 22, 37, 13, tzinfo=UTC)),
        (" 2021-11-02T22:37:13Z ", datetime(2021, 11, 2, 22, 37, 13, tzinfo=UTC)),
        ("2021-11-02T22:37:13.1234567Z", datetime(2021, 11, 2, 22, 37, 13, 123456, tzinfo=UTC)),
    ],
)
def test_times(text: str, moment: datetime) -> None:
    assert read_time(text) == (epoch_us(moment), None)


def test_a_time_without_zone_is_utc_and_a_deviation() -> None:
    assert read_time("1970-01-01T00:00:01") == (1_000_000, "time-without-zone")
    assert read_time("19700101000001.5") == (1_500_000, "time-without-zone")


@given(st.integers(min_value=-(2**52), max_value=2**52))
def test_microseconds_survive(since_us: int) -> None:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=since_us)
    assert read_time(moment.isoformat()) == (since_us, None)


@pytest.mark.parametrize("text", ["202111022237Z", "2021-11-02-22:37:13Z", "2021110222371"])
def test_digits_that_are_no_time_are_not_read_as_one(text: str) -> None:
    with pytest.raises(ValueError, match="is no time"):
        read_time(text)


@given(st.text(max_size=30))
def test_other_texts_are_refused(text: str) -> None:
    try:
        read_time(text)
    except (ValueError, OverflowError):
        return


@pytest.mark.parametrize(
    ("stated", "duration"),
    [
        ("10", 600),
        (10, 600),
        ("10 minutes", 600),
        ("0.05", 3),
        ("24 hours", 86_400),
        ("30s", 30),
        ("FOREVER", math.inf),
        ("forever ", math.inf),
        ("10 GB", None),
        ("", None),
        (None, None),
        (True, None),
        (-1, None),
        ({}, None),
    ],
)
def test_durations(stated: object, duration: float | None) -> None:
    assert duration_s(stated) == (pytest.approx(duration) if duration is not None else None)
