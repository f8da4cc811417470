"""How the rules of TR-548 are written down: clauses of both editions, and judges of one look."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from instep.conformance import (
    HELD,
    Clause,
    Evidence,
    Judge,
    RuleBroken,
    RuleLevel,
    Verdict,
)
from instep_tapi.conformance.observations import Log, RecordSeen
from instep_tapi.facts.stream_profile import TAPI_2_1_3, TAPI_2_6

__all__ = ["by_look", "by_record", "clauses", "listed", "log_judge"]


def clauses(
    v1_1: str, v3_2: str, level: RuleLevel = RuleLevel.MUST, level_v3_2: RuleLevel | None = None
) -> Mapping[str, Clause]:
    """Where v1.1 and v3.2 of TR-548 state a rule; an empty text: that edition does not."""
    stated = {
        TAPI_2_1_3: (v1_1 and f"TR-548 {v1_1}", level),
        TAPI_2_6: (v3_2 and f"TR-548 {v3_2} of v3.2", level_v3_2 or level),
    }
    return {edition: Clause(text, how) for edition, (text, how) in stated.items() if text}


def by_look(look: Callable[[Any], str | None], evidence: str = "evidence") -> Callable[[], Judge]:
    """A judge of single observations: `look` gives what is wrong, empty where nothing is, and None
    where there is nothing to judge.
    """

    def judge(seen: Any) -> Sequence[Verdict]:
        wrong = look(seen)
        if wrong is None:
            return ()
        if not wrong:
            return HELD
        found: Evidence = getattr(seen, evidence)
        return (RuleBroken(wrong, (found,)),)

    return lambda: judge


by_record: Callable[[Callable[[RecordSeen], str | None]], Callable[[], Judge]] = by_look
"""The same for single records."""


def listed(names: Sequence[str]) -> str:
    """Names as a part of a sentence."""
    return ", ".join(names)


def log_judge(look: Callable[[Log], Iterator[Verdict]]) -> Callable[[], Judge]:
    """A judge of the readings of a log: of what `look` finds the first thousand count."""

    def judge(log: Log) -> Sequence[Verdict]:
        found: list[Verdict] = []
        for verdict in look(log):
            found.append(verdict)
            if len(found) >= 1_000:
                break
        return found

    return lambda: judge
