"""Judges a provider by what is seen on the wire: which of R0800, R0801 and R0802 it holds.

Pure: it is told of each report and of each answer, in the order in which they happen, and states
what they prove. A result is about what was seen here: a layer between both sides can lose, repeat
and answer reports too, and nobody can tell these apart from the provider's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Final

import msgspec

__all__ = ["RequirementResult", "RequirementStatus", "SeenReport", "SequenceConformance"]

_MAX_KEPT_BYTES: Final = 64 * 1024


class RequirementStatus(StrEnum):
    """What was seen of a requirement."""

    HELD = "held"
    BROKEN = "broken"
    NOT_SEEN = "not seen"
    """Nothing happened that it is about."""


class SeenReport(msgspec.Struct, frozen=True):
    """One report as evidence."""

    session: str
    number: int | None
    """None: it has no number that can be read."""
    digest: bytes
    """The same for functionally identical reports."""
    received_at_us: int
    raw: bytes
    """The content of the body, up to 64 KiB of it."""


class _Seen(msgspec.Struct, frozen=True):
    """The same for a report that may become evidence; few do."""

    session: str
    number: int | None
    digest: bytes
    received_at_us: int
    content: Callable[[], bytes]

    def shown(self) -> SeenReport:
        raw = self.content()[:_MAX_KEPT_BYTES]
        return SeenReport(self.session, self.number, self.digest, self.received_at_us, raw)


class RequirementResult(msgspec.Struct, frozen=True):
    """What was seen of one requirement, and how often."""

    requirement: str
    status: RequirementStatus
    held: int
    """How many times it was held …"""
    broken: int
    """… and broken."""
    reason: str = ""
    """What the first break was."""
    evidence: Sequence[SeenReport] = ()
    """The report before the first break, if there was one, and the report that breaks it."""


class _Tally:
    """What was seen of one requirement."""

    def __init__(self, requirement: str) -> None:
        self.requirement = requirement
        self.held = 0
        self.broken = 0
        self.reason = ""
        self.evidence: tuple[SeenReport, ...] = ()

    def break_(self, reason: str, *evidence: _Seen) -> None:
        self.broken += 1
        if self.broken == 1:
            self.reason = reason
            self.evidence = tuple(one.shown() for one in evidence)

    def result(self) -> RequirementResult:
        status = RequirementStatus.HELD if self.held else RequirementStatus.NOT_SEEN
        status = RequirementStatus.BROKEN if self.broken else status
        return RequirementResult(
            self.requirement, status, self.held, self.broken, self.reason, self.evidence
        )


class _Session:
    """What was seen in one subscription."""

    def __init__(self) -> None:
        self.last: _Seen | None = None
        """The report with the highest number."""
        self.confirmed = False
        """Whether we have answered a report of this number with 2xx …"""
        self.faulted = False
        """… or with a fault, after which its content may change (R0802)."""


class SequenceConformance:
    """The rules of `ReportSequence` over all subscriptions to a provider (SDPi, R0800 to R0802)."""

    def __init__(self) -> None:
        self._sessions: dict[str, _Session] = {}
        self._first = _Tally("R0800")
        self._increments = _Tally("R0801")
        self._repeats = _Tally("R0802")

    def received(
        self,
        session: str,
        number: int | None,
        digest: bytes,
        content: Callable[[], bytes],
        received_at_us: int,
    ) -> None:
        """A report has come. `number`: None where it has none that can be read. `content`: gives
        the content of its body, and is called where the report is evidence.
        """
        report = _Seen(session, number, digest, received_at_us, content)
        known = self._sessions.setdefault(session, _Session())
        last = known.last
        if last is None:
            self._judge_first(report)
        elif number is not None and number == last.number:
            self._judge_repeat(known, last, report)
            if digest != last.digest:
                # It is compared with what came last under its number.
                known.last = report
            return
        else:
            self._judge_next(known, last, report)
        if last is None or (number or 0) > (last.number or 0):
            known.last, known.confirmed, known.faulted = report, False, False

    def answered(self, session: str, number: int | None, *, confirmed: bool) -> None:
        """A report was answered: with 2xx, or with a fault. No answer is no fault (R0802)."""
        known = self._sessions.get(session)
        if known is not None and known.last is not None and number == known.last.number:
            known.confirmed = known.confirmed or confirmed
            known.faulted = known.faulted or not confirmed

    def ended(self, session: str) -> None:
        """A subscription is over."""
        self._sessions.pop(session, None)

    def results(self) -> list[RequirementResult]:
        """The results so far."""
        return [one.result() for one in (self._first, self._increments, self._repeats)]

    def _judge_first(self, report: _Seen) -> None:
        if report.number == 1:
            self._first.held += 1
        else:
            self._first.break_(f"the first number is {_shown(report)}", report)

    def _judge_next(self, known: _Session, last: _Seen, report: _Seen) -> None:
        due = None if last.number is None else last.number + 1
        if report.number is None or report.number != due:
            self._increments.break_(f"{_shown(report)} came after {_shown(last)}", last, report)
        elif known.faulted and not known.confirmed:
            self._increments.break_(
                f"{_shown(report)} came though {_shown(last)} was answered with a fault",
                last,
                report,
            )
        else:
            self._increments.held += 1

    def _judge_repeat(self, known: _Session, last: _Seen, report: _Seen) -> None:
        if report.digest == last.digest:
            self._repeats.held += 1
        elif not known.faulted:
            self._repeats.break_(f"{_shown(report)} came again with other content", last, report)


def _shown(report: _Seen) -> str:
    return "no number" if report.number is None else f"number {report.number}"
