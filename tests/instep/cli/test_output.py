"""What every command prints with."""

import io
import json
import math
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.table import Column

from instep.cli.output import (
    Listing,
    json_bytes,
    moment,
    one_line,
    plain,
    plain_lines,
    stamp,
)
from instep.model.durations import duration


@given(st.integers(0, 4_000_000_000_000_000))
def test_a_stamp_shows_the_microsecond_in_utc(at_us: int) -> None:
    read = datetime.strptime(stamp(at_us), "%Y-%m-%dT%H:%M:%S.%f%z")
    assert read.tzinfo == UTC
    assert round(read.timestamp()) == pytest.approx(at_us / 1e6, abs=1)
    assert read.microsecond == at_us % 1_000_000


def test_a_moment_is_the_same_to_the_second() -> None:
    assert moment(1_700_000_000_999_999) == "2023-11-14 22:13:20"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "—"),
        (math.inf, "for ever"),
        (0.0, "0 ms"),
        (0.0123, "12 ms"),
        (1.5, "1.5 s"),
        (59.0, "59 s"),
        (60.0, "1 min"),
        (90.0, "90 s"),
        (600.0, "10 min"),
        (3600.0, "1 h"),
        (14_400.0, "4 h"),
        (259_200.0, "3 d"),
    ],
)
def test_a_period_is_shown_in_its_own_unit(seconds: float | None, shown: str) -> None:
    assert duration(seconds) == shown


def test_text_of_others_cannot_steer_the_terminal() -> None:
    hostile = "a\x1b[2J\x07\x9b1m\u202eb\nc é"
    assert plain(hostile) == "a\ufffd[2J\ufffd\ufffd1m\ufffdb c é"
    assert plain_lines(hostile) == "a\ufffd[2J\ufffd\ufffd1m\ufffdb\nc é"


@given(st.recursive(st.none() | st.text() | st.integers(), st.lists), st.sampled_from([None, 2]))
def test_a_json_line_is_printable_and_the_same_value(value: object, indent: int | None) -> None:
    body = one_line(json.dumps(value, indent=indent, ensure_ascii=False).encode())
    encoded = json_bytes({"text": value, "body": body})
    assert encoded.decode().isprintable()
    assert json.loads(encoded) == {"text": value, "body": value}


@given(st.recursive(st.none() | st.text() | st.integers(), st.lists), st.sampled_from([None, 2]))
def test_a_body_on_one_line_is_the_same_value(value: object, indent: int | None) -> None:
    body = json.dumps(value, indent=indent).encode().replace(b"\n", b"\r\n")
    spliced = bytes(one_line(body))
    assert b"\n" not in spliced
    assert b"\r" not in spliced
    assert json.loads(spliced) == value


def test_an_entity_without_body_is_null() -> None:
    assert bytes(one_line(b"")) == b"null"


def test_the_parts_of_a_listing_line_up() -> None:
    console = Console(file=io.StringIO(), width=60)
    listing = Listing(console, [Column("A", width=6), Column("B", ratio=1)])
    for number in range(450):
        listing.add(str(number), "x" * (number % 90))
    listing.flush()
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue().splitlines()
    assert len(shown) == 450 + 2
    starts = {line.index("x") for line in shown if "x" in line}
    assert len(starts) == 1
    assert max(map(len, shown)) <= 60


def test_an_empty_listing_shows_its_heading() -> None:
    console = Console(file=io.StringIO(), width=60)
    Listing(console, [Column("Alpha", ratio=1)]).flush()
    assert isinstance(console.file, io.StringIO)
    assert "Alpha" in console.file.getvalue()
