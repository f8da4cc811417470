"""Ages that outlive the connection from which they come."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from instep import Phase
from instep.runtime.streams.ages import StreamAges
from tests.instep.metrics.test_readiness import STREAM


def status_of(read_delay_s: float = 0.0) -> Any:
    status = SimpleNamespace(phase=Phase.ALIGNED, caught_up=True, read_delay_s=read_delay_s)
    return cast(Any, status)


def test_a_provider_that_was_given_up_stays_silent_past_its_limit() -> None:
    """The alert compares both; without a limit it would end when the connection does."""
    now_s = 0.0
    ages = StreamAges(lambda: now_s)
    feed = SimpleNamespace(heard_within_s=75.0, silent_s=0.0, unheard_s=0.0)
    ages.connected(cast(Any, feed), cast(Any, SimpleNamespace(record_s=0.0, holds=False)))
    now_s, feed.silent_s = 76.0, 76.0
    ages.disconnected(status_of(1.0))
    now_s = 500.0
    told = ages.add_to(STREAM, status_of(1.0), 0.0)
    assert (told.heard_age_s, told.heard_within_s) == (500.0, 75.0)


@pytest.mark.parametrize(("holds", "behind_s"), [(False, 110.0), (True, 400.0)])
def test_what_a_silence_has_proven_stays_known_when_the_connection_ends(
    *, holds: bool, behind_s: float
) -> None:
    """Else the margin would fall by all the time since the alignment noted a silence last."""
    now_s = 0.0
    ages = StreamAges(lambda: now_s)
    feed = SimpleNamespace(heard_within_s=75.0, silent_s=10.0, unheard_s=10.0)
    ages.connected(cast(Any, feed), cast(Any, SimpleNamespace(record_s=0.0, holds=holds)))
    now_s = 400.0
    ages.disconnected(status_of())
    now_s = 500.0
    told = ages.add_to(STREAM, status_of(), 100.0)
    assert told.behind_s == behind_s


def test_a_quiet_stream_says_in_half_minutes_up_to_when_it_is_known() -> None:
    now_s = 100.0
    ages = StreamAges(lambda: now_s)
    feed = SimpleNamespace(heard_within_s=75.0, silent_s=1.0, unheard_s=1.0)
    read_ahead = SimpleNamespace(record_s=0.0, holds=False)
    ages.connected(cast(Any, feed), cast(Any, read_ahead))
    said: dict[float, int] = {}
    for at_s in (100.0, 115.0, 130.0, 131.0):
        now_s = at_s
        said[now_s] = ages.add_to(STREAM, status_of(), 50.0).report.known_at_us
    assert list(said.values()) == [90_000_000, 90_000_000, 120_000_000, 120_000_000]
    # What is read and not committed may be missing, from then on.
    now_s, read_ahead.holds = 500.0, True
    told = ages.add_to(STREAM, status_of(), 50.0)
    assert (told.known_at_us, told.behind_s) == (120_000_000, 370.0)
