"""The machines in every history of a small world; and the mistakes that show."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.explore.alignment.provider import Log
from tests.explore.alignment.world import AlignmentWorld, Bounds
from tests.explore.decisions.tables import DECISIONS
from tests.explore.planted import PLANTED, Mistake, planted
from tests.explore.search import Violation, World, explore, replay
from tests.explore.transitions import taken
from tests.explore.worlds import ALIGNMENT, BEGUN, SEQUENCES

_LONGEST = "compacted, an end unread"
"""Closed as well, at 160,000 states: `make explore ARGS=--small` visits them."""
_CLOSED = {name: world for name, world in (ALIGNMENT | BEGUN).items() if name != _LONGEST}
_LONG = "two partitions, one unread"
_MOST_STATES = 100_000
_MOST_TO_TAKE_ALL = 1_500
"""So many states of each world take every transition."""


# Each visits some thousand states, up to six seconds: all of them, or nothing would be shown.
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.long) if n == _LONG else n for n in _CLOSED]
)
def test_no_history_of_a_small_log_ends_wrong(name: str) -> None:
    _explore_all(_CLOSED[name])


@pytest.mark.parametrize("name", SEQUENCES)
def test_no_history_of_a_short_sequence_ends_wrong(name: str) -> None:
    _explore_all(SEQUENCES[name])


def _explore_all(world: World) -> None:
    found = explore(world, most_states=_MOST_STATES)
    assert (found.violation, found.history) == ("", ())
    assert found.closed, f"{found.states:,} states, and more are left"


@pytest.mark.parametrize("compare", DECISIONS.values(), ids=list(DECISIONS))
def test_a_decision_is_that_of_its_reference_in_every_small_case(
    compare: Callable[[], int],
) -> None:
    assert compare() > 0


def test_every_transition_of_the_tables_is_taken() -> None:
    with taken() as transitions:
        for world in (ALIGNMENT | BEGUN | SEQUENCES).values():
            explore(world, most_states=_MOST_TO_TAKE_ALL)
    assert transitions.missing == []


@pytest.mark.parametrize("mistake", PLANTED.values(), ids=list(PLANTED))
def test_a_planted_mistake_has_a_shortest_history(mistake: Mistake) -> None:
    with planted(mistake) as world:
        found = explore(world, most_states=_MOST_STATES)
        assert found.violation
        with pytest.raises(Violation):
            replay(world, found.history)
    # Without the mistake the same history ends well.
    replay(mistake.world, found.history)


_REBUILT = (
    # An attempt that was interrupted, and a log that was rebuilt while the clock went back: what
    # lives lay at a lower place than before, and counted as outdated (A3).
    (
        "state a; state a; open; deliver; deliver, killed after the commit; lose log, begin anew;"
        " open; deliver; wait; wait; wait; open; deliver; wait; wait; wait; wait"
    ),
    (
        "state a; state a; state b; open; deliver; deliver; cut; lose log, begin anew; open;"
        " deliver; deliver; open; deliver; deliver; wait; wait; wait; wait"
    ),
)


@pytest.mark.parametrize("history", _REBUILT)
def test_a2_a_log_that_ends_before_ours_sweeps_nothing(history: str) -> None:
    world = AlignmentWorld(Log(rebuilds_at_once=True), Bounds(changes=3, faults=2))
    for move in history.split("; "):
        # Where the alignment closes the connection itself it is opened again.
        if move in world.moves():
            world = replay(world, [move])
    assert {key: row.version for key, row in world.rows.items()} == dict(world.provider.live)
