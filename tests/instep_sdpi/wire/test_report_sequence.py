"""The number of a report: what xsd:positiveInteger allows, and nothing else (SDPi)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep_sdpi.wire.report_sequence import BEYOND_COUNTING, NumberError, read_message_number
from instep_soap import read_envelope
from tests.instep_sdpi.sdpi_kit import envelope


def number_of(text: str | None, header: str = "") -> int | None:
    return read_message_number(read_envelope(envelope("", text, header)).headers)


@pytest.mark.parametrize(
    ("text", "number"),
    [("1", 1), ("01", 1), ("+5", 5), (" 7 ", 7), ("\n7", 7), ("9223372036854775807", None)],
)
def test_the_spellings_of_a_positive_integer(text: str, number: int | None) -> None:
    assert number_of(text) == (number or BEYOND_COUNTING)


@pytest.mark.parametrize(
    "text", ["0", "-1", "", " ", "1.0", "1e3", "0x1", "٣", "1 2", "--1", "NaN", "+", "00"]
)
def test_what_is_no_positive_integer_is_no_number(text: str) -> None:
    with pytest.raises(NumberError):
        number_of(text)


def test_a_number_that_nobody_counts_to_is_one_all_the_same() -> None:
    assert number_of("1" + "0" * 30) == BEYOND_COUNTING
    assert number_of("9" * 6_000) == BEYOND_COUNTING


def test_no_header_is_no_number() -> None:
    assert number_of(None) is None


def test_the_header_is_there_once_and_with_its_attribute() -> None:
    with pytest.raises(NumberError, match="twice"):
        number_of("1", '<sdpi:ReportSequence MessageNumber="2"/>')
    with pytest.raises(NumberError, match="no MessageNumber"):
        number_of(None, "<sdpi:ReportSequence/>")


@given(st.integers(min_value=1, max_value=10**18 - 1), st.sampled_from(["", "0", "+00"]))
def test_every_number_is_read_as_it_was_written(number: int, before: str) -> None:
    assert number_of(f"{before}{number}") == number
