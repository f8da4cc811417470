"""What may be said of a stream: only what was seen, and not for longer than it was heard."""

from __future__ import annotations

from typing import Any

import pytest

from instep.model.freshness import Freshness, FreshnessState, StreamReport, stale_streams
from instep.model.position import Phase

GOOD: dict[str, Any] = {"connected": True, "caught_up": True, "readable": True}


def fresh(phase: Phase = Phase.ALIGNED, heard_s: float | None = 1.0, **said: Any) -> Freshness:
    unreadable = said.pop("unreadable", 0)
    return Freshness(
        consumer="east",
        stream="all",
        phase=phase,
        report=StreamReport(stream="all", **(GOOD | said)),
        heard_s=heard_s,
        stale_after_s=10.0,
        unreadable=unreadable,
    )


@pytest.mark.parametrize(
    ("one", "state", "text"),
    [
        (fresh(), FreshnessState.ALIGNED, "aligned"),
        (fresh(readable=False), FreshnessState.ALIGNED, "aligned"),
        (fresh(unreadable=12), FreshnessState.ALIGNED_UNREADABLE, "aligned, 12 unreadable"),
        (fresh(Phase.ALIGNING), FreshnessState.NOT_ALIGNED, "aligning"),
        (
            fresh(caught_up=False),
            FreshnessState.NOT_ALIGNED,
            "aligned, and reading what came since",
        ),
        (
            fresh(readable=False, refused=7),
            FreshnessState.UNREADABLE,
            "aligned, but nothing is readable: 7 records refused",
        ),
        (fresh(connected=False), FreshnessState.DISCONNECTED, "aligned, but not connected"),
        (
            fresh(connected=False, unreadable=12),
            FreshnessState.DISCONNECTED,
            "aligned, 12 unreadable, but not connected",
        ),
        (fresh(heard_s=10.5), FreshnessState.STALE, "aligned, but stale: last heard 10 s ago"),
        (
            fresh(heard_s=None),
            FreshnessState.STALE,
            "aligned, but nobody says that it is followed",
        ),
    ],
)
def test_the_worst_that_is_known_is_said(one: Freshness, state: FreshnessState, text: str) -> None:
    assert (one.state, one.text) == (state, text)
    assert one.in_step is (state in {FreshnessState.ALIGNED, FreshnessState.ALIGNED_UNREADABLE})


def test_the_streams_that_are_not_in_step_are_named() -> None:
    assert stale_streams([fresh(), fresh(connected=False)]) == (
        "east / all is aligned, but not connected"
    )
    assert not stale_streams([fresh(), fresh(unreadable=3)])
