"""The worlds that are explored: each a kind of log or of sequence, within bounds.

The small ones are closed: no history within their bounds is left out. The large ones are visited as
far as time allows.
"""

from __future__ import annotations

from typing import Final

import msgspec

from instep.sequencing import (
    ChangedContentPolicy,
    FaultPolicy,
    GapPolicy,
    IncompleteBehavior,
    LastResort,
    SequencerSettings,
    TimeoutBehavior,
)
from tests.explore.alignment.changes import ChangeWorld
from tests.explore.alignment.provider import Log
from tests.explore.alignment.world import SETTINGS, AlignmentWorld, Bounds
from tests.explore.search import replay
from tests.explore.sequencing.world import SequenceBounds, SequenceWorld

__all__ = ["ALIGNMENT", "BEGUN", "LARGE_ALIGNMENT", "LARGE_SEQUENCES", "SEQUENCES"]

_COMPACTED: Final = Log()
_TRUNCATED: Final = Log(compacted=False)

ALIGNMENT: Final = {
    "compacted": AlignmentWorld(_COMPACTED, Bounds(changes=1, faults=1)),
    "realigned": AlignmentWorld(_COMPACTED, Bounds(changes=1, faults=0, commands=1)),
    "without offsets": AlignmentWorld(
        Log(offsets=False, tombstone_after_delete=True), Bounds(changes=2, faults=0)
    ),
    "alone": AlignmentWorld(_COMPACTED, Bounds(keys="a", changes=2, faults=0, alone=True)),
    "truncated": AlignmentWorld(_TRUNCATED, Bounds(changes=2, faults=0, truncations=1)),
    "changes": ChangeWorld(_COMPACTED, Bounds(keys="a", changes=2, faults=0)),
    "changes, truncated": ChangeWorld(_TRUNCATED, Bounds(keys="a", changes=2, faults=0)),
    "changes of what is not there": ChangeWorld(
        _COMPACTED, Bounds(keys="a", changes=2, faults=0), deviates=True
    ),
    "changes of what is not there, truncated": ChangeWorld(
        _TRUNCATED, Bounds(keys="a", changes=2, faults=0), deviates=True
    ),
}


def _begun(first: AlignmentWorld, bounds: Bounds, *history: str) -> AlignmentWorld:
    """A world after this history."""
    return replay(first.within(Bounds(changes=4, faults=2, truncations=1)), history).within(bounds)


_ALIGNED: Final = ("open", "state a", "deliver", "wait", "wait", "wait")
"""The stream is aligned, with one entity."""
_NO_BOUNDS: Final = Bounds()
_SLOW: Final = msgspec.structs.replace(SETTINGS, lost_realigns=0)
"""A stream that was read too late is lost at once."""
_GUARDED: Final = msgspec.structs.replace(_SLOW, sweep_guard_records=0, sweep_guard_share=0.4)
"""The sweep of one entity of two is held."""

BEGUN: Final = {
    "compacted, an end unread": _begun(
        AlignmentWorld(_COMPACTED, _NO_BOUNDS),
        Bounds(changes=1, faults=1),
        *_ALIGNED,
        *("cut", "end a"),
    ),
    "two partitions, one unread": _begun(
        AlignmentWorld(Log(partitions=2), _NO_BOUNDS),
        Bounds(changes=0, faults=1),
        *("open", "wait", "state a", "deliver", "end a", "state b", "cut"),
    ),
    "truncated, a reader who is overtaken": _begun(
        AlignmentWorld(_TRUNCATED, _NO_BOUNDS),
        Bounds(changes=2, faults=0, truncations=2),
        *_ALIGNED,
    ),
    "suspended": _begun(
        AlignmentWorld(_COMPACTED, _NO_BOUNDS, _SLOW),
        Bounds(keys="a", changes=0, faults=1, suspends=True),
        *_ALIGNED,
    ),
    "suspended in a sweep": _begun(
        AlignmentWorld(_COMPACTED, _NO_BOUNDS, _SLOW),
        Bounds(keys="a", changes=0, faults=1, suspends=True),
        *("open", "state a", "deliver"),
    ),
    "suspended in a doubt": _begun(
        AlignmentWorld(Log(tombstone_retention_s=6), _NO_BOUNDS, _SLOW),
        Bounds(changes=0, faults=1, suspends=True),
        *("open", "state a", "deliver", "cut", "state b", "state b", "wait", "wait", "wait"),
        *("open", "deliver, killed after the commit"),
    ),
    "guarded": _begun(
        AlignmentWorld(_COMPACTED, _NO_BOUNDS, _GUARDED),
        Bounds(changes=0, faults=1, suspends=True),
        *("open", "state a", "state b", "deliver", "deliver", "wait", "wait", "wait", "cut"),
        *("end a", "lose log, go on further", "open", "deliver", "wait", "wait", "wait"),
    ),
    "alone, with an empty log": _begun(
        AlignmentWorld(_COMPACTED, _NO_BOUNDS),
        Bounds(keys="a", changes=1, faults=0, alone=True),
        *_ALIGNED,
        *("cut", "end a", "lose log, go on further"),
    ),
    "truncated, guarded": _begun(
        AlignmentWorld(_TRUNCATED, _NO_BOUNDS, _GUARDED),
        Bounds(changes=0, faults=0, commands=1),
        *("open", "state a", "state b", "deliver", "deliver", "wait", "wait", "wait", "cut"),
        *("end a", "lose log, go on further"),
    ),
    "truncated, and cut": _begun(
        AlignmentWorld(_TRUNCATED, _NO_BOUNDS),
        Bounds(keys="a", changes=0, faults=1),
        *_ALIGNED,
        *("cut, going away", "state a", "truncate"),
    ),
    "by a baseline, killed in it": _begun(
        AlignmentWorld(_COMPACTED, _NO_BOUNDS, _SLOW, by_baseline=True),
        Bounds(keys="a", changes=0, faults=1, reconfigures=True),
        *("state a", "open, killed after the commit"),
    ),
    "by a baseline, suspended": _begun(
        AlignmentWorld(_COMPACTED, _NO_BOUNDS, _SLOW, by_baseline=True),
        Bounds(keys="a", changes=0, faults=1, suspends=True),
        *_ALIGNED,
    ),
}
"""Worlds that begin further on, so that a shortest history is short."""

LARGE_ALIGNMENT: Final = {
    "compacted": AlignmentWorld(_COMPACTED, Bounds(changes=3, faults=2)),
    "one entity": AlignmentWorld(_COMPACTED, Bounds(keys="a", changes=2, faults=1, commands=1)),
    "two partitions": AlignmentWorld(Log(partitions=2), Bounds(changes=3, faults=2)),
    "three entities": AlignmentWorld(_COMPACTED, Bounds(keys="abc", changes=3, faults=1)),
    "without offsets": AlignmentWorld(Log(offsets=False), Bounds(changes=3, faults=2)),
    "tombstones after deletes": AlignmentWorld(
        Log(tombstone_after_delete=True), Bounds(changes=3, faults=2)
    ),
    "a clock that goes back": AlignmentWorld(
        Log(rebuilds_at_once=True), Bounds(changes=3, faults=2)
    ),
    "tokens by place": AlignmentWorld(Log(tokens_by_place=True), Bounds(changes=3, faults=2)),
    "alone": AlignmentWorld(_COMPACTED, Bounds(changes=2, faults=2, alone=True)),
    "truncated": AlignmentWorld(_TRUNCATED, Bounds(changes=3, faults=1, truncations=1)),
    "truncated without offsets": AlignmentWorld(
        Log(compacted=False, offsets=False), Bounds(changes=3, faults=2)
    ),
    "changes": ChangeWorld(_COMPACTED, Bounds(changes=3, faults=2)),
    "changes, truncated": ChangeWorld(_TRUNCATED, Bounds(changes=3, faults=1)),
    "changes of what is not there": ChangeWorld(
        _COMPACTED, Bounds(changes=4, faults=0), deviates=True
    ),
}


def _quick(**settings: object) -> SequencerSettings:
    """A sequence whose times are a second each."""
    return msgspec.convert(
        {
            "gap_deadline_s": 1.0,
            "gap_repeat_s": 1.0,
            "gap_attempts": 1,
            "keep_ended_s": 1.0,
            "keep_copies_s": 2.0,
            "remembered_contents": 1,
            **settings,
        },
        SequencerSettings,
    )


_KINDS: Final = {
    "as it comes": _quick(),
    "in any order": _quick(ordered=False, gap_last_resort=LastResort.SKIP),
    "waiting for what was faulted": _quick(
        fault_policy=FaultPolicy.WAIT, gap_policy=GapPolicy.WAIT, gap_last_resort=LastResort.SKIP
    ),
    "discarding what is behind a gap": _quick(
        incomplete=IncompleteBehavior.DISCARD, gap_policy=GapPolicy.FAIL
    ),
    "failing with a fault": _quick(
        incomplete=IncompleteBehavior.FAULT,
        fault_policy=FaultPolicy.FAIL,
        on_changed=ChangedContentPolicy.FAIL,
    ),
    "realigning": _quick(gap_policy=GapPolicy.REALIGN, on_changed=ChangedContentPolicy.REALIGN),
    "acknowledged when released": _quick(
        acknowledge_buffered=False, idle_timeout_s=1.0, on_timeout=TimeoutBehavior.TERMINATE
    ),
    "with little room": _quick(limit_messages=1, limit_gaps=1, limit_jump=2),
    "from zero to a highest number": _quick(
        first_number=0,
        max_number=1,
        limit_bytes=2,
        limit_jump=0,
        remembered_contents=2,
        gap_policy=GapPolicy.SKIP,
        idle_timeout_s=2.0,
    ),
}

_SMALL: Final = SequenceBounds(numbers=2, arrivals=1, requests=1, faults=0)
_LARGE: Final = SequenceBounds(numbers=3, arrivals=3, requests=2, faults=1)

SEQUENCES: Final = {name: SequenceWorld(settings, _SMALL) for name, settings in _KINDS.items()} | {
    "beyond the highest number": SequenceWorld(
        _KINDS["from zero to a highest number"], SequenceBounds(3, arrivals=2, requests=0, faults=0)
    ),
    "with little room for many": SequenceWorld(
        _KINDS["with little room"], SequenceBounds(4, arrivals=2, requests=0, faults=0)
    ),
    "two copies": SequenceWorld(
        _quick(remembered_contents=2), SequenceBounds(2, arrivals=3, requests=0, faults=0)
    ),
    "discarding what comes with a request": replay(
        SequenceWorld(
            _KINDS["discarding what is behind a gap"],
            SequenceBounds(3, arrivals=2, requests=1, faults=0),
        ),
        ("receive 2", "commit"),
    ),
    "discarding what was faulted": replay(
        SequenceWorld(
            _KINDS["discarding what is behind a gap"],
            SequenceBounds(2, arrivals=1, requests=2, faults=0),
        ),
        ("fault 2", "commit"),
    ),
    "resumed after a failure": replay(
        SequenceWorld(
            _quick(
                incomplete=IncompleteBehavior.FAULT,
                fault_policy=FaultPolicy.WAIT,
                gap_policy=GapPolicy.FAIL,
                remembered_contents=2,
            ),
            SequenceBounds(2, arrivals=3, requests=1, faults=0),
        ),
        ("receive 2", "commit"),
    ),
    "two requests": SequenceWorld(_quick(), SequenceBounds(1, arrivals=1, requests=2, faults=0)),
    "with failures": SequenceWorld(_quick(), SequenceBounds(2, arrivals=2, requests=0, faults=1)),
}
LARGE_SEQUENCES: Final = {
    name: SequenceWorld(settings, _LARGE) for name, settings in _KINDS.items()
}
