"""Event times land as the facts of TAPI read them, one by one and in bulk."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

import pytest

from instep_spark.landing.timestamps import parse_timestamps
from instep_tapi.facts.times import time_us

EVENING: Final = datetime(2026, 6, 30, 23, 59, 59, tzinfo=UTC)
SPELLED: Final[dict[str, datetime | None]] = {
    "2026-06-30T23:59:59Z": EVENING,
    "2026-06-30 23:59:59Z": EVENING,
    "2026-06-30t23:59:59z": EVENING,
    "20260630235959.0-0500": EVENING + timedelta(hours=5),
    "20260630235959Z": EVENING,
    "2026-06-30T23:59:59.1234567Z": EVENING + timedelta(microseconds=123_456),
    "2026-06-30T23:59:59,5Z": EVENING + timedelta(seconds=0.5),
    "2026-W27-2T23:59:59Z": EVENING,
    "2026-06-30T23:59:60Z": EVENING + timedelta(microseconds=999_999),
    "20260630235960Z": EVENING + timedelta(microseconds=999_999),
    "2026-06-30T24:00:00Z": EVENING + timedelta(seconds=1),
    "20260630240000Z": EVENING + timedelta(seconds=1),
    "2026-06-30": None,
    "20260630": None,
    "2026-06-30T23:59:59.123456x7Z": None,
    "0000-06-30T23:59:59Z": None,
    "yesterday": None,
    "": None,
}


@pytest.mark.parametrize("text", SPELLED)
def test_each_spelling_lands_as_the_facts_read_it(text: str) -> None:
    (landed,) = parse_timestamps([text])
    assert landed.as_py() == SPELLED[text]
    assert landed.value == time_us(text)


def test_a_batch_is_read_as_its_texts_are() -> None:
    texts = [*SPELLED, None]
    usual = ["2026-06-30T23:59:59Z", None, "2026-06-30T23:59:59.5+02:00"]
    for batch in (texts, usual, [None], []):
        assert [one.value for one in parse_timestamps(batch)] == [time_us(one) for one in batch]
