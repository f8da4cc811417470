"""Which transitions of the tables an exploration has taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from instep.alignment import machine, resume
from instep.alignment.transitions import TRANSITIONS
from instep.sequencing import sequencer
from instep.sequencing import transitions as sequence_transitions
from instep.sequencing.transitions import SEQUENCE_TRANSITIONS

__all__ = ["Taken", "taken"]


class Taken:
    """The transitions that were taken, of all that the tables list."""

    def __init__(self) -> None:
        self.taken: set[tuple[str, str]] = set()

    @property
    def missing(self) -> list[tuple[str, str]]:
        """Those that were not, as phase and event."""
        tables: list[Any] = [TRANSITIONS, SEQUENCE_TRANSITIONS]
        listed = {
            (f"{type(phase).__name__}.{phase.name}", event.name)
            for table in tables
            for phase, events in table.items()
            for event in events
        }
        return sorted(listed - self.taken)

    def report(self) -> str:
        missing = ", ".join(f"{phase} + {event}" for phase, event in self.missing)
        return f"{len(self.taken)} transitions taken; not taken: {missing or 'none'}"

    def wrap(self, after: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        def noted(phase: Any, event: Any) -> Any:
            following = after(phase, event)
            self.taken.add((f"{type(phase).__name__}.{phase.name}", event.name))
            return following

        return noted


@contextmanager
def taken() -> Iterator[Taken]:
    """Note the transitions that are taken meanwhile."""
    noted = Taken()
    with ExitStack() as stack:
        for module in (machine, resume, sequencer, sequence_transitions):
            wrapped = noted.wrap(module.phase_after)
            stack.enter_context(patch.object(module, "phase_after", wrapped))
        yield noted
