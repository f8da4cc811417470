"""Judges a trace by the rules of a protocol, and says what was found. Pure.

Each rule ends as *held* (so many times), *broken* (with the evidence of the first break) or *not
seen* (and how to provoke it). A result is about what was seen here: a proxy between both sides can
lose, repeat and refuse as well, and nobody can tell that apart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from instep.conformance.events import (
    ConnectionOpened,
    Event,
    MessageReceived,
    MessagesSkipped,
    RequestReceived,
)
from instep.conformance.rules import (
    MAX_EVIDENCE_BYTES,
    Clause,
    Evidence,
    Judge,
    Rule,
    RuleBook,
    RuleBroken,
    RuleLevel,
    Verdict,
)

__all__ = ["ConformanceReport", "RuleResult", "RuleStatus", "TraceJudge", "judge"]


class RuleStatus(StrEnum):
    """What was seen of a rule."""

    HELD = "held"
    BROKEN = "broken"
    NOT_SEEN = "not seen"


class RuleResult(msgspec.Struct, frozen=True, kw_only=True):
    """What was found of one rule."""

    rule: str
    chapter: str
    clause: str
    level: RuleLevel
    text: str
    status: RuleStatus
    held: int = 0
    """How many times it was seen held …"""
    broken: int = 0
    """… and broken."""
    reason: str = ""
    """What the first break was."""
    evidence: Sequence[Evidence] = ()
    """What shows the first break."""
    provoke: str = ""
    """Where it was not seen: how to see it."""


class ConformanceReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was found of a peer."""

    protocol: str
    title: str
    subject: str
    """The peer."""
    edition: str
    began_at_us: int
    ended_at_us: int
    connections: int
    messages: int
    """How many messages were judged."""
    skipped: bool = False
    """Whether messages came that were not judged …"""
    messages_skipped: int = 0
    """… and how many, as far as it is known."""
    notes: Sequence[str] = ()
    """What kept us from seeing more."""
    results: Sequence[RuleResult]

    @property
    def broken(self) -> list[RuleResult]:
        """The rules that were seen broken."""
        return [one for one in self.results if one.status is RuleStatus.BROKEN]

    @property
    def conforms(self) -> bool:
        """Whether no MUST was seen broken."""
        return not any(one.level is RuleLevel.MUST for one in self.broken)

    @property
    def judged(self) -> bool:
        """Whether any rule was seen: without that nothing is known of the peer."""
        return any(one.status is not RuleStatus.NOT_SEEN for one in self.results)

    @property
    def verdict(self) -> str:
        """Whether it conforms, in words that a sentence goes on with."""
        if not self.judged:
            return "was not judged"
        if not self.conforms:
            return "does not conform"
        return f"{'breaks no must' if self.broken else 'conforms'}, as far as it was seen"


class _Tally:
    """What was seen of one rule."""

    def __init__(self) -> None:
        self.held = 0
        self.broken = 0
        self.first: RuleBroken | None = None
        self.edition = ""

    def add(self, verdict: Verdict, edition: str, evidence_bytes: int) -> None:
        if isinstance(verdict, RuleBroken):
            self.broken += 1
            if self.first is None:
                self.first, self.edition = verdict.cut(evidence_bytes), edition
        else:
            self.held += 1
            if not self.broken:
                self.edition = edition


class TraceJudge:
    """Judges one trace as it grows. Not safe to be shared by threads."""

    def __init__(
        self,
        book: RuleBook,
        subject: str = "",
        *,
        evidence_bytes: int = MAX_EVIDENCE_BYTES,
        tell: Callable[[str, RuleBroken], None] | None = None,
    ) -> None:
        """Judge by the rules of `book`. Of each piece of evidence `evidence_bytes` are kept; `tell`
        is told of each break, with the id of its rule.
        """
        self._book = book
        self._subject = subject
        self._evidence_bytes = evidence_bytes
        self._tell = tell
        self._tallies = {rule.id: _Tally() for rule in book.rules}
        self._began_at_us = self._ended_at_us = 0
        self._connections = self._messages = self._messages_skipped = 0
        self._skipped = False
        self._make_judges()
        self.notes: list[str] = []
        """What kept us from seeing more, for the report."""

    @property
    def began(self) -> bool:
        """Whether anything was observed so far."""
        return bool(self._began_at_us)

    def _make_judges(self) -> None:
        self._observer = self._book.make_observer()
        self._judges: dict[type, list[tuple[Rule, Judge]]] = defaultdict(list)
        for rule in self._book.rules:
            judge = rule.make_judge()
            for kind in rule.sees:
                self._judges[kind].append((rule, judge))

    def begin_anew(self) -> None:
        """Judge what the events so far show as a whole, and forget them: what comes is a trace of
        its own. What was found stays.
        """
        for observation in self._observer.end(self._ended_at_us):
            self._judge(observation, self._tallies)
        self._make_judges()

    def remind(self, event: Event) -> None:
        """Show an event that came before the trace, and judge nothing by it."""
        nowhere = {rule.id: _Tally() for rule in self._book.rules}
        tell, self._tell = self._tell, None
        for observation in self._observer.read(event):
            self._judge(observation, nowhere)
        self._tell = tell

    def skip(self, messages: int = 0) -> None:
        """So many messages came that are not judged."""
        self._skipped = True
        self._messages_skipped += messages

    def observe(self, event: Event) -> None:
        """Judge what one event shows of the peer."""
        self._began_at_us = self._began_at_us or event.at_us
        self._ended_at_us = max(self._ended_at_us, event.at_us)
        match event:
            case ConnectionOpened():
                self._connections += 1
            case MessageReceived() | RequestReceived():
                self._messages += 1
            case MessagesSkipped():
                self.skip(event.messages)
        for observation in self._observer.read(event):
            self._judge(observation, self._tallies)

    def _judge(self, observation: Any, tallies: dict[str, _Tally]) -> None:
        edition = self._observer.edition_of(observation)
        for rule, judge in self._judges.get(type(observation), ()):
            if edition not in rule.clauses:
                continue
            for verdict in judge(observation):
                tallies[rule.id].add(verdict, edition, self._evidence_bytes)
                if self._tell is not None and isinstance(verdict, RuleBroken):
                    self._tell(rule.id, verdict)

    def report(self, at_us: int | None = None, *, whole: bool = True) -> ConformanceReport:
        """What was found until now; judging may go on. `whole`: whether what needs the whole trace
        is judged as if it ended here.
        """
        at_us = self._ended_at_us if at_us is None else at_us
        at_end: dict[str, _Tally] = {rule.id: _Tally() for rule in self._book.rules}
        for observation in self._observer.end(at_us) if whole else ():
            self._judge(observation, at_end)
        results = [
            self._result(rule, self._tallies[rule.id], at_end[rule.id]) for rule in self._book.rules
        ]
        return ConformanceReport(
            protocol=self._book.protocol,
            title=self._book.title,
            subject=self._subject,
            edition=self._observer.edition,
            began_at_us=self._began_at_us,
            ended_at_us=max(at_us, self._ended_at_us),
            connections=self._connections,
            messages=self._messages,
            skipped=self._skipped,
            messages_skipped=self._messages_skipped,
            notes=tuple(self.notes),
            results=[one for one in results if one is not None],
        )

    def _result(self, rule: Rule, live: _Tally, at_end: _Tally) -> RuleResult | None:
        shown = live if live.first is not None or at_end.first is None else at_end
        edition = shown.edition or live.edition or at_end.edition or self._observer.edition
        clause = rule.clauses.get(edition)
        if clause is None:
            if edition:
                return None  # this edition does not demand it
            clause = next(iter(rule.clauses.values()))
        return _stated(rule, clause, live, at_end, shown.first)


def _stated(
    rule: Rule, clause: Clause, live: _Tally, at_end: _Tally, first: RuleBroken | None
) -> RuleResult:
    held, broken = live.held + at_end.held, live.broken + at_end.broken
    status = RuleStatus.BROKEN if broken else RuleStatus.HELD if held else RuleStatus.NOT_SEEN
    return RuleResult(
        rule=rule.id,
        chapter=rule.chapter,
        clause=clause.text,
        level=clause.level,
        text=rule.text,
        status=status,
        held=held,
        broken=broken,
        reason=first.reason if first else "",
        evidence=first.evidence if first else (),
        provoke=rule.provoke if status is RuleStatus.NOT_SEEN else "",
    )


def judge(book: RuleBook, events: Iterable[Event], subject: str = "") -> ConformanceReport:
    """The report on a whole trace."""
    judging = TraceJudge(book, subject)
    for event in events:
        judging.observe(event)
    return judging.report()
