"""Times and durations in the spellings of the field."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep_tapi.facts.times import duration_s, epoch_us, read_time, time_us


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


@pytest.mark.parametrize(
    "text",
    [
        "2016-12-31T23:59:60Z",
        "2016-12-31t23:59:60.75z",
        "2017-01-01T00:59:60+01:00",
        "20161231235960.2Z",
    ],
)
def test_a_leap_second_is_the_end_of_the_second_before_it(text: str) -> None:
    end = datetime(2016, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    assert read_time(text) == (epoch_us(end), "leap-second")


@pytest.mark.parametrize(
    "text",
    ["2016-12-31T24:00:00Z", "2016-12-31T24:00:00.000Z", "2016-12-31t24:00:00z", "20161231240000Z"],
)
def test_the_end_of_a_day_is_the_beginning_of_the_next(text: str) -> None:
    assert read_time(text) == (epoch_us(datetime(2017, 1, 1, tzinfo=UTC)), "hour-24")


def test_lower_case_letters_are_a_spelling_of_rfc_3339() -> None:
    moment = datetime(2021, 11, 2, 22, 37, 13, 500_000, tzinfo=UTC)
    assert read_time("2021-11-02t22:37:13.5z") == (epoch_us(moment), None)
    assert read_time("20211102223713.5z") == (epoch_us(moment), None)


@pytest.mark.parametrize(
    "text",
    [
        "2016-12-31T24:00:01Z",
        "2016-12-31T24:30:00Z",
        "2016-12-31T24:00:00.1Z",
        "2016-12-31T12:30:61Z",
        "20161231240001Z",
        "2016-12-31T25:00:00Z",
        "24:00:00",
    ],
)
def test_what_no_clock_shows_is_no_time(text: str) -> None:
    with pytest.raises((ValueError, OverflowError)):
        read_time(text)


@given(st.integers(min_value=-(2**52), max_value=2**52))
def test_microseconds_survive(since_us: int) -> None:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=since_us)
    assert read_time(moment.isoformat()) == (since_us, None)


@pytest.mark.parametrize("text", ["202111022237Z", "2021-11-02-22:37:13Z", "2021110222371"])
def test_digits_that_are_no_time_are_not_read_as_one(text: str) -> None:
    with pytest.raises(ValueError, match="is no time"):
        read_time(text)


@pytest.mark.parametrize(
    "text",
    [
        "2021-04-28T14:14:28.777777ABCZ",
        "2021-04-28T14:14:28.7777779.5+01:00",
        "2021-04-28T14:14:28.77777777 5Z",
        "2021-04-28T14:14:28.777777A",
        f"2021-04-28T14:14:28.{'7' * 20}.Ez6LS777Z",
    ],
)
def test_nothing_stands_between_a_fraction_and_the_zone(text: str) -> None:
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
        ("0.16666666666666666", 10),
        ("0.0083333333333333333333", 0.5),
        ("24 hours", 86_400),
        ("30s", 30),
        ("FOREVER", math.inf),
        ("forever ", math.inf),
        ("10 GB", None),
        ("1" * 16, None),
        (f"0.{'1' * 41}", None),
        ("", None),
        (None, None),
        (True, None),
        (-1, None),
        ({}, None),
    ],
)
def test_durations(stated: object, duration: float | None) -> None:
    assert duration_s(stated) == (pytest.approx(duration) if duration is not None else None)


LAST_US = epoch_us(datetime(2026, 6, 30, 23, 59, 59, tzinfo=UTC))
SPELLINGS: dict[str, int | None] = {
    "2026-06-30T23:59:59Z": LAST_US,
    "2026-06-30 23:59:59Z": LAST_US,  # RFC 3339 5.6 lets a blank stand for the T
    "2026-06-30t23:59:59z": LAST_US,  # and small letters
    "20260630235959Z": LAST_US,  # as the YANG has it
    "20260630185959.0-0500": LAST_US,
    "2026-06-30T23:59:59.1234567Z": LAST_US + 123_456,
    "2026-06-30T23:59:59,5Z": LAST_US + 500_000,  # ISO 8601: a comma
    # RFC 3339 5.7: a leap second. No clock of ours has it: it reads as the moment before its end.
    "2026-06-30T23:59:60Z": LAST_US + 999_999,
    "20260630235960Z": LAST_US + 999_999,
    # ISO 8601: the end of a day is the beginning of the next.
    "2026-06-30T24:00:00Z": LAST_US + 1_000_000,
    "20260630240000Z": LAST_US + 1_000_000,
    "2026-W27-2T23:59:59Z": LAST_US,
    # A date is no date-time (RFC 3339 5.6): to read it as midnight would be a guess.
    "2026-06-30": None,
    "20260630": None,
    "2026-06-30T23:59:59.123456x7Z": None,
}


@pytest.mark.parametrize("text", SPELLINGS)
def test_each_spelling_of_a_time_has_one_reading(text: str) -> None:
    assert time_us(text) == SPELLINGS[text]


@given(st.text(alphabet="0123456789-:.,TtZz+W x", max_size=34) | st.datetimes().map(str))
def test_a_time_read_by_the_short_way_is_the_one_of_the_long(text: str) -> None:
    try:
        expected: int | None = read_time(text)[0]
    except (ValueError, OverflowError):
        expected = None

    assert time_us(text) == expected


def test_no_text_is_no_time() -> None:
    assert time_us(None) is None
