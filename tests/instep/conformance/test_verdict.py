"""A report says no more than its rules show."""

from __future__ import annotations

import pytest

from instep.conformance.judging import ConformanceReport, RuleResult, RuleStatus
from instep.conformance.rules import RuleLevel


@pytest.mark.parametrize(
    ("level", "status", "verdict"),
    [
        (RuleLevel.MUST, RuleStatus.HELD, "conforms, as far as it was seen"),
        (RuleLevel.MUST, RuleStatus.NOT_SEEN, "was not judged"),
        (RuleLevel.SHOULD, RuleStatus.BROKEN, "breaks no must, as far as it was seen"),
        (RuleLevel.MUST, RuleStatus.BROKEN, "does not conform"),
    ],
)
def test_the_verdict_in_words(level: RuleLevel, status: RuleStatus, verdict: str) -> None:
    result = RuleResult(
        rule="tapi-a", chapter="A", clause="1", level=level, text="It does.", status=status
    )
    report = ConformanceReport(
        protocol="tapi",
        title="",
        subject="",
        edition="",
        began_at_us=0,
        ended_at_us=1,
        connections=1,
        messages=1,
        results=[result],
    )
    assert report.verdict == verdict
