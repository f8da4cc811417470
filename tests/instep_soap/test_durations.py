"""Durations of XML Schema."""

from __future__ import annotations

import pytest

from instep_soap import read_duration_s, write_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("PT0S", 0.0),
        ("PT00H01M00S", 60.0),
        (" PT1M30.5S ", 90.5),
        ("P1D", 86_400.0),
        ("P1Y2M3DT4H5M6S", 31_536_000 + 5_184_000 + 259_200 + 14_400 + 300 + 6.0),
        ("PT11.8S", 11.8),
    ],
)
def test_a_duration_is_read(text: str, seconds: float) -> None:
    assert read_duration_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "P", "PT", "1M", "-PT1M", "PT1H-1M", "PTS", "P1H", "PT٣S"])
def test_what_is_no_duration_of_the_future(text: str) -> None:
    assert read_duration_s(text) is None


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0, "PT0S"), (60.0, "PT60S"), (1.5, "PT1.5S"), (-1.0, "PT0S")]
)
def test_a_duration_is_written(seconds: float, text: str) -> None:
    assert write_duration(seconds) == text
    assert read_duration_s(text) == max(seconds, 0.0)
