"""Ages that outlive the connection from which they come."""

from types import SimpleNamespace
from typing import Any, cast

from instep import Phase
from instep.runtime.streams.ages import StreamAges
from tests.instep.metrics.test_readiness import STREAM


def test_a_provider_that_was_given_up_stays_silent_past_its_limit() -> None:
    """The alert compares both; without a limit it would end when the connection does."""
    now_s = 0.0
    ages = StreamAges(lambda: now_s)
    status = cast(Any, SimpleNamespace(phase=Phase.ALIGNED, caught_up=True, read_delay_s=1.0))
    feed = SimpleNamespace(heard_within_s=75.0, silent_s=0.0, unheard_s=0.0)
    ages.connected(cast(Any, feed), cast(Any, SimpleNamespace(record_s=0.0, holds=False)))
    now_s, feed.silent_s = 76.0, 76.0
    ages.disconnected()
    now_s = 500.0
    told = ages.add_to(STREAM, status, 0.0)
    assert (told.heard_age_s, told.heard_within_s) == (500.0, 75.0)
