"""Rules of conformance as data, each with the judge that tells whether an observation holds it.

A rule is about one statement of a specification that a client can see held or broken. Its judge is
pure: it is given observations in their order, and returns verdicts. What it cannot tell it does not
judge: no verdict is no fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec

from instep.conformance.events import Event

__all__ = [
    "HELD",
    "NOTHING",
    "Clause",
    "Evidence",
    "Judge",
    "Observer",
    "Rule",
    "RuleBook",
    "RuleBroken",
    "RuleHeld",
    "RuleLevel",
    "UnjudgedClause",
    "Verdict",
]

MAX_EVIDENCE_BYTES: Final = 64 * 1024
MAX_EVIDENCE: Final = 6
"""Most pieces of evidence of one break."""


class RuleLevel(StrEnum):
    """What a specification demands: where a MUST is broken, the peer does not conform."""

    MUST = "must"
    SHOULD = "should"


class Clause(msgspec.Struct, frozen=True):
    """Where a specification states a rule, and how strongly."""

    text: str
    level: RuleLevel = RuleLevel.MUST


class Evidence(msgspec.Struct, frozen=True):
    """A piece of evidence: something that came, and when."""

    at_us: int
    what: str
    """What it is, and where in the trace: a record with its token, an answer with its path."""
    content: bytes
    """Its bytes, up to 64 KiB of them."""

    @staticmethod
    def of(at_us: int, what: str, content: bytes) -> Evidence:
        """Evidence with its content cut to the bound."""
        return Evidence(at_us, what, content[:MAX_EVIDENCE_BYTES])

    def cut(self, most_bytes: int) -> Evidence:
        """The same with so many bytes at most."""
        if len(self.content) <= most_bytes:
            return self
        return Evidence(self.at_us, self.what, self.content[:most_bytes])


class RuleHeld(msgspec.Struct, frozen=True):
    """The rule was seen held."""


class RuleBroken(msgspec.Struct, frozen=True):
    """The rule was seen broken."""

    reason: str
    evidence: Sequence[Evidence] = ()

    def cut(self, most_bytes: int) -> RuleBroken:
        """The same with the first pieces of evidence, and so many bytes of each at most."""
        pieces = self.evidence[:MAX_EVIDENCE]
        return RuleBroken(self.reason, tuple(one.cut(most_bytes) for one in pieces))


Verdict = RuleHeld | RuleBroken
HELD: Final[tuple[Verdict, ...]] = (RuleHeld(),)
NOTHING: Final[tuple[Verdict, ...]] = ()
Judge = Callable[[Any], Sequence[Verdict]]
"""Is given each observation of the kinds that its rule names."""


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule: what is demanded, why, and how it is judged."""

    id: str
    """Of a closed vocabulary: metrics and reports name it."""
    chapter: str
    text: str
    """The statement in our own words."""
    clauses: Mapping[str, Clause]
    """Edition of the specification → where it says so; it is not judged by another edition."""
    provoke: str
    """How to see it, where it was not seen."""
    why: str
    """Why it matters to a client, and what breaks in its data."""
    right: str = ""
    """An example of what holds it …"""
    wrong: str = ""
    """… and of what breaks it."""
    sees: tuple[type, ...]
    """The kinds of observations that it is about."""
    make_judge: Callable[[], Judge]
    """A new judge, for one trace."""


class Observer:
    """Turns the events of a trace into the observations of a protocol. One for each trace."""

    edition: str = ""
    """The edition of the specification that the peer follows, as far as it has shown."""

    def read(self, event: Event) -> Iterator[Any]:
        """The observations that an event gives."""
        raise NotImplementedError

    def end(self, at_us: int) -> Iterator[Any]:
        """The observations about the whole trace so far; it may go on afterwards."""
        raise NotImplementedError

    def edition_of(self, observation: Any) -> str:
        """The edition by which an observation is judged."""
        raise NotImplementedError


class UnjudgedClause(msgspec.Struct, frozen=True):
    """What a specification demands, and no rule is about."""

    clause: str
    text: str
    """The statement in our own words."""
    why: str
    """Why it is not judged: what nobody can see from outside, or cannot tell apart."""


class RuleBook(msgspec.Struct, frozen=True):
    """The rules of one protocol."""

    protocol: str
    title: str
    rules: tuple[Rule, ...]
    make_observer: Callable[[], Observer]
    unjudged: tuple[UnjudgedClause, ...] = ()
    """What the specification demands beside them."""
