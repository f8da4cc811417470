"""An outbox and a publisher are killed: a few rounds; many by `make outbox ROUNDS=100`."""

from __future__ import annotations

import asyncio

import pytest

from tests.crash.publishing import check_order, rounds
from tests.crash.site_kit import store_url
from tests.postgres_kit import Missing


# Some 10 s each: nine processes are started.
@pytest.mark.timeout(300)
@pytest.mark.parametrize("database", ["postgresql", pytest.param("sqlite", marks=pytest.mark.long)])
def test_killed_at_any_moment_nothing_is_missing_nor_out_of_order(database: str) -> None:
    try:
        with store_url(database) as url:
            report = asyncio.run(rounds(url, 2, seed=3))
    except Missing as missing:
        pytest.skip(str(missing))
    print(report)
    assert report.faults == []
    assert min(report.kills.values()) >= 2
    assert report.changes > 0


@pytest.mark.parametrize(
    ("told", "fault"),
    [
        ([1, 2, 4], "1 are missing"),
        ([1, 2, 3, 4, 9], "never committed"),
        ([1, 3, 2, 3, 4], "before the one that precedes it"),
        ([1, 2, 3, 4, 1, 2, 3, 4], "came again"),
        ([1, 2, 3, 2, 3, 2, 3, 4], "went back 2 times"),
        ([1, 2, 3, 2, 4], "out of order"),
    ],
)
def test_what_is_wrong_is_found(told: list[int], fault: str) -> None:
    _, faults = check_order("relay", told, [1, 2, 3, 4], kills=1, again=2)
    assert any(fault in one for one in faults), faults


def test_a_copy_after_a_kill_is_as_the_text_says() -> None:
    assert check_order("relay", [1, 2, 3, 2, 3, 4], [1, 2, 3, 4], kills=1, again=2) == (2, [])
