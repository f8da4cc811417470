"""Mistakes that are planted into the machines. The explorer must find each: it proves only what it
can find.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple
from unittest.mock import patch

from instep.alignment import continuity, machine
from instep.alignment.continuity import Continuity
from instep.alignment.gaps import GapDetector
from instep.alignment.unknown_entities import realignment_due
from instep.model.position import UnknownEntity
from instep.model.records import RecordHeader
from instep.sequencing.sequencer import Sequencer
from instep.sequencing.window import ReceiveWindow
from tests.explore.search import World
from tests.explore.worlds import ALIGNMENT, BEGUN, SEQUENCES

__all__ = ["PLANTED", "Mistake", "planted"]


class Mistake(NamedTuple):
    """A mistake, and the world that shows it."""

    world: Any
    target: Any
    name: str
    wrong: Callable[..., Any]


_classify = continuity.classify


def _continued_behind_ours(first: RecordHeader, position: Any, **known: Any) -> Continuity:
    """A2 as it was: what lies behind our record goes on from it."""
    found = _classify(first, position, **known)
    behind = first.appended_at_us >= position.appended_at_us
    return Continuity.CONTINUED if found is Continuity.DOUBTFUL and behind else found


def _no_gap_later(_self: GapDetector, *_args: Any, **_known: Any) -> str:
    """A gap is looked for at the first record of a connection only."""
    return ""


def _forget_in_vain(_unknown: Any) -> tuple[dict[str, UnknownEntity], int]:
    """What an attempt has not stated is forgotten: the next CHANGE of it calls for another one."""
    return {}, 0


def _due_at_once(position: Any, _least_s: float, now_us: int) -> bool:
    """A realignment for a CHANGE waits for nothing."""
    return realignment_due(position, 0.0, now_us)


_drop = ReceiveWindow.drop


def _drop_without_a_trace(self: ReceiveWindow, number: int) -> bool:
    """What is dropped still counts as received."""
    dropped = _drop(self, number)
    if dropped:
        self.received.add(number)
    return dropped


_add_filled = ReceiveWindow.add_filled


def _fill_what_was_cancelled(self: ReceiveWindow, numbers: Any) -> None:
    """A fill leaves the numbers among the cancelled ones (S5)."""
    cancelled = self.cancelled.copy()
    _add_filled(self, numbers)
    self.cancelled = cancelled


def _keep_decisions(_self: Sequencer) -> None:
    """A transaction that failed is not undone (S3)."""


PLANTED: Final = {
    "what lies behind our record goes on from it": Mistake(
        BEGUN["compacted, an end unread"],
        continuity,
        "classify",
        _continued_behind_ours,
    ),
    "a gap is looked for at the first record only": Mistake(
        BEGUN["truncated, a reader who is overtaken"], GapDetector, "missing", _no_gap_later
    ),
    "what an attempt has not stated is sought again": Mistake(
        ALIGNMENT["changes of what is not there"], machine, "after_alignment", _forget_in_vain
    ),
    "a realignment for a CHANGE waits for nothing": Mistake(
        ALIGNMENT["changes of what is not there"], machine, "realignment_due", _due_at_once
    ),
    "what is dropped counts as received": Mistake(
        SEQUENCES["as it comes"], ReceiveWindow, "drop", _drop_without_a_trace
    ),
    "what is filled stays cancelled": Mistake(
        SEQUENCES["two requests"], ReceiveWindow, "add_filled", _fill_what_was_cancelled
    ),
    "a transaction that failed is not undone": Mistake(
        SEQUENCES["with failures"], Sequencer, "roll_back", _keep_decisions
    ),
}


@contextmanager
def planted(mistake: Mistake) -> Iterator[World]:
    """The world of a mistake, while it is planted."""
    with patch.object(mistake.target, mistake.name, mistake.wrong):
        yield mistake.world
