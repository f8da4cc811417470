"""Points in time of XML Schema."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep_soap import read_datetime_us, write_datetime

US = 1_000_000


@pytest.mark.parametrize(
    ("text", "at_us"),
    [
        ("1970-01-01T00:00:01Z", US),
        (" 1970-01-01T00:00:01.5Z\n", US + 500_000),
        ("1970-01-01T01:00:01+01:00", US),
        ("1969-12-31T23:00:01-01:00", US),
        ("1970-01-01T00:00:01", US),
        ("1970-01-01T00:00:00.0000019Z", 1),
        ("1969-01-01T00:00:00Z", 0),
        ("9999-12-31T23:59:59Z", 253_402_300_799 * US),
        ("1970-01-01", None),
        ("1970-01-01 00:00:01Z", None),
        ("1970-02-30T00:00:00Z", None),
        ("10000-01-01T00:00:00Z", None),
        ("1970-01-01T00:00:00+99:00", None),
        ("", None),
    ],
)
def test_what_is_read(text: str, at_us: int | None) -> None:
    assert read_datetime_us(text) == at_us


@given(st.integers(0, 253_402_300_799_999_999))
def test_what_is_written_is_read_again(at_us: int) -> None:
    assert read_datetime_us(write_datetime(at_us)) == at_us
