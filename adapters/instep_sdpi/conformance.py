"""The rules of numbered reports (SDPi, R0800 to R0802), judged by what is seen on the wire.

A result is about what was seen here: a layer between both sides can lose, repeat and answer reports
too, and nobody can tell these apart from the provider's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from instep.conformance import (
    HELD,
    NOTHING,
    Clause,
    Event,
    Evidence,
    MessagesSkipped,
    Observer,
    RequestAnswered,
    RequestReceived,
    Rule,
    RuleBook,
    RuleBroken,
    UnjudgedClause,
    Verdict,
)

__all__ = ["sdpi_rules"]

_MAX_SESSIONS: Final = 1_000


@dataclass(slots=True, eq=False)
class _First:
    """The first report of a subscription came."""

    report: RequestReceived


@dataclass(slots=True, eq=False)
class _Repeat:
    """A report came again under the number of the one before it."""

    last: RequestReceived
    report: RequestReceived
    faulted: bool
    """Whether it was answered with a fault, after which its content may change."""


@dataclass(slots=True, eq=False)
class _Next:
    """A report came that is neither the first nor a repeat."""

    last: RequestReceived
    """The report with the highest number until then."""
    report: RequestReceived
    answered: bool
    """Whether that one got any answer …"""
    confirmed: bool
    """… and one that was no fault."""


@dataclass(slots=True, eq=False)
class _Session:
    """What was seen in one subscription."""

    last: RequestReceived
    """The report with the highest number."""
    confirmed: bool = False
    faulted: bool = False


class _ReportObserver(Observer):
    """Reads reports and answers as steps of their subscriptions."""

    def __init__(self) -> None:
        self._sessions: dict[str, _Session] = {}
        self._skipped = False
        """Whether sessions may have begun that were not seen."""

    def edition_of(self, observation: Any) -> str:  # noqa: ARG002 - there is one
        """See `Observer`."""
        return ""

    def end(self, at_us: int) -> Iterator[Any]:  # noqa: ARG002 - reports are judged as they come
        """See `Observer`."""
        return iter(())

    def read(self, event: Event) -> Iterator[Any]:
        """See `Observer`."""
        match event:
            case RequestReceived():
                found = self._received(event)
                # Where reports were skipped, the first one of them may have been.
                if not (isinstance(found, _First) and self._skipped and event.number != 1):
                    yield found
            case MessagesSkipped():
                self._sessions.clear()
                self._skipped = True
            case RequestAnswered() if known := self._sessions.get(event.session):
                if event.number == known.last.number:
                    known.confirmed = known.confirmed or event.confirmed
                    known.faulted = known.faulted or not event.confirmed
            case _:
                pass

    def _received(self, report: RequestReceived) -> _First | _Repeat | _Next:
        known = self._sessions.get(report.session)
        if known is None:
            if len(self._sessions) >= _MAX_SESSIONS:
                del self._sessions[next(iter(self._sessions))]
            self._sessions[report.session] = _Session(report)
            return _First(report)
        last = known.last
        if report.number is not None and report.number == last.number:
            # It is compared with what came last under its number.
            known.last = report
            return _Repeat(last, report, known.faulted)
        answered = known.confirmed or known.faulted
        found = _Next(last, report, answered, known.confirmed)
        if (report.number or 0) > (last.number or 0):
            self._sessions[report.session] = _Session(report)
        return found


def _evidence(report: RequestReceived) -> Evidence:
    return Evidence.of(report.at_us, f"{_shown(report)}, session {report.session}", report.content)


def _first(seen: _First) -> Sequence[Verdict]:
    if seen.report.number == 1:
        return HELD
    return (RuleBroken(f"the first number is {_shown(seen.report)}", (_evidence(seen.report),)),)


def _increments(seen: _Next) -> Sequence[Verdict]:
    last, report = seen.last, seen.report
    due = None if last.number is None else last.number + 1
    if report.number is None or report.number != due:
        reason = f"{_shown(report)} came after {_shown(last)}"
    elif not seen.confirmed:
        what = "answered with a fault" if seen.answered else "not answered yet"
        reason = f"{_shown(report)} came though {_shown(last)} was {what}"
    else:
        return HELD
    return (RuleBroken(reason, (_evidence(last), _evidence(report))),)


def _repeats(seen: _Repeat) -> Sequence[Verdict]:
    if seen.report.digest == seen.last.digest:
        return HELD
    if seen.faulted:
        return NOTHING
    reason = f"{_shown(seen.report)} came again with other content"
    return (RuleBroken(reason, (_evidence(seen.last), _evidence(seen.report))),)


def _shown(report: RequestReceived) -> str:
    return "no number" if report.number is None else f"number {report.number}"


_CHAPTER: Final = "Numbered reports"
_RULES: Final = (
    Rule(
        id="sdpi-first-number",
        chapter=_CHAPTER,
        text="The first report of a subscription has the number 1.",
        clauses={"": Clause("SDPi R0800")},
        provoke="Let the provider report something.",
        why="A consumer cannot tell a first report with another number from one that follows lost"
        " ones: it must read the whole MDIB again.",
        right='<sdpi:ReportSequence MessageNumber="1"/>',
        wrong='<sdpi:ReportSequence MessageNumber="4"/>',
        sees=(_First,),
        make_judge=lambda: _first,
    ),
    Rule(
        id="sdpi-increments",
        chapter=_CHAPTER,
        text="The number grows by 1 with each report that is confirmed: not on a fault, and not"
        " without an answer.",
        clauses={"": Clause("SDPi R0801")},
        provoke="Let the provider report twice; --refuse answers one report with a fault, --hold"
        " leaves one without an answer.",
        why="A gap is what shows a lost report. Where numbers are skipped, each gap is a false"
        " alarm; where they are not counted, a lost alarm limit goes unnoticed.",
        right="1, 2, 3",
        wrong="1, 2, 4",
        sees=(_Next,),
        make_judge=lambda: _increments,
    ),
    Rule(
        id="sdpi-repeats",
        chapter=_CHAPTER,
        text="A report that comes again under its number states the same, unless it got a fault.",
        clauses={"": Clause("SDPi R0802")},
        provoke="--hold 10 leaves one report without an answer, so that it comes again.",
        why="A consumer ignores what it has. Other content under a number that it has is lost.",
        right="number 3 twice, with the same content",
        wrong="number 3 twice, with other values",
        sees=(_Repeat,),
        make_judge=lambda: _repeats,
    ),
)


_UNJUDGED: Final = (
    UnjudgedClause(
        "SDPi R0800, note",
        "A session begins when the provider receives Subscribe; numbers are of the session.",
        "It says what R0800 counts in: each subscription is judged by itself.",
    ),
    UnjudgedClause(
        "SDPi R0801, note",
        "A layer before the consumer may answer instead of it, with 503 for instance.",
        "An answer that we did not give is not in the trace: a report behind it is one more under"
        " the same number, which R0802 is about.",
    ),
    UnjudgedClause(
        "SDPi R0802, note",
        "Two reports are functionally identical where either gives the same MDIB.",
        "Compared is what the reports state, without their envelopes: two texts that happen to have"
        " one effect are told apart.",
    ),
    UnjudgedClause(
        "WS-Eventing; BICEPS",
        "Subscribe, Renew, SubscriptionEnd and the MDIB are as they are specified.",
        "Rules are about numbered reports alone.",
    ),
)


def sdpi_rules() -> RuleBook:
    """The rules of `ReportSequence`."""
    return RuleBook("sdpi", "Numbered reports of BICEPS (SDPi)", _RULES, _ReportObserver, _UNJUDGED)
