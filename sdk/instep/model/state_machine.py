"""State machines as data: `{state: {event: next state}}`. What a table does not list is illegal.

One convention for all: an event that the table does not list is a mistake in the driver, an
`IllegalTransition`. For an event that a peer requests, the machine checks first and refuses in the
protocol's terms (`instep.sequencing.transitions.phase_after_request`). The diagrams of the
documentation are drawn from the tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

__all__ = ["IllegalTransition", "next_state"]

State = TypeVar("State", bound=StrEnum)
Event = TypeVar("Event", bound=StrEnum)


class IllegalTransition(AssertionError):
    """A driver caused an event that `state` does not allow: a mistake in the program."""

    def __init__(self, state: StrEnum, event: StrEnum) -> None:
        super().__init__(f"{event!s} is not possible while {state!s}")
        self.state = state
        self.event = event


def next_state(table: Mapping[State, Mapping[Event, State]], state: State, event: Event) -> State:
    """The state that follows. Raises `IllegalTransition`, which leaves everything as it was."""
    following = table.get(state, {}).get(event)
    if following is None:
        raise IllegalTransition(state, event)
    return following
