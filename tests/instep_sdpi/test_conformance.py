"""The status on a provider: held, broken with its two messages, or not seen."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from instep.conformance import (
    Event,
    RequestAnswered,
    RequestReceived,
    RuleResult,
    RuleStatus,
    TraceJudge,
)
from instep_sdpi.conformance import sdpi_rules
from tests.instep.conformance.live_kit import broken_between_gaps

HELD, BROKEN, NOT_SEEN = (
    RuleStatus.HELD,
    RuleStatus.BROKEN,
    RuleStatus.NOT_SEEN,
)


class Wire:
    """Reports and answers of one provider."""

    def __init__(self) -> None:
        self.rules = TraceJudge(sdpi_rules())

    def report(
        self,
        number: int | None,
        content: str = "",
        *,
        confirmed: bool | None = True,
        session: str = "s",
    ) -> None:
        """A report comes. `confirmed`: the answer; None: it gets none."""
        content = content or f"content {number}"
        self.rules.observe(RequestReceived(1, session, number, content, content.encode()))
        if confirmed is not None:
            self.rules.observe(RequestAnswered(1, session, number, confirmed))

    @property
    def results(self) -> dict[str, RuleResult]:
        return {one.clause.removeprefix("SDPi "): one for one in self.rules.report().results}

    @property
    def statuses(self) -> tuple[RuleStatus, ...]:
        return tuple(self.results[f"R080{n}"].status for n in range(3))


def test_nothing_is_proven_by_nothing() -> None:
    assert Wire().statuses == (NOT_SEEN, NOT_SEEN, NOT_SEEN)


def test_r0800_the_first_number_of_each_session_is_1() -> None:
    wire = Wire()
    wire.report(1, session="a")
    wire.report(1, session="b")
    assert wire.statuses == (HELD, NOT_SEEN, NOT_SEEN)
    assert wire.results["R0800"].held == 2
    wire.report(4, session="c")
    found = wire.results["R0800"]
    assert (found.status, found.held, found.broken) == (BROKEN, 2, 1)
    assert [one.what for one in found.evidence] == ["number 4, session c"]


def test_r0801_it_grows_by_exactly_1() -> None:
    wire = Wire()
    for number in (1, 2, 3):
        wire.report(number)
    assert wire.statuses == (HELD, HELD, NOT_SEEN)
    wire.report(5)
    found = wire.results["R0801"]
    assert (found.status, found.reason) == (BROKEN, "number 5 came after number 3")
    assert [one.content for one in found.evidence] == [b"content 3", b"content 5"]


def test_r0801_it_does_not_grow_on_a_fault() -> None:
    wire = Wire()
    wire.report(1, confirmed=False)
    wire.report(2)
    found = wire.results["R0801"]
    assert found.status is BROKEN
    assert "answered with a fault" in found.reason


def test_r0801_it_does_not_grow_without_an_answer() -> None:
    wire = Wire()
    wire.report(1, confirmed=None)
    wire.report(2)
    found = wire.results["R0801"]
    assert found.status is BROKEN
    assert found.reason == "number 2 came though number 1 was not answered yet"


def test_r0801_a_fault_and_then_a_confirmation_let_it_grow() -> None:
    wire = Wire()
    wire.report(1, confirmed=False)
    wire.report(1)
    wire.report(2)
    assert wire.statuses == (HELD, HELD, HELD)


def test_r0801_a_number_that_goes_back_breaks_it() -> None:
    wire = Wire()
    for number in (1, 2, 3, 1):
        wire.report(number)
    assert wire.results["R0801"].reason == "number 1 came after number 3"


def test_r0801_a_report_without_a_number_breaks_it() -> None:
    wire = Wire()
    wire.report(1)
    wire.report(None, "x")
    assert wire.results["R0801"].status is BROKEN


def test_r0802_a_repeat_is_functionally_identical() -> None:
    wire = Wire()
    wire.report(1)
    wire.report(1)
    assert wire.statuses == (HELD, NOT_SEEN, HELD)
    wire.report(1, "other")
    found = wire.results["R0802"]
    assert (found.status, found.held, found.broken) == (BROKEN, 1, 1)
    assert [one.content for one in found.evidence] == [b"content 1", b"other"]


def test_r0802_after_a_fault_the_content_may_change() -> None:
    wire = Wire()
    wire.report(1, confirmed=False)
    wire.report(1, "other")
    assert wire.results["R0802"].status is NOT_SEEN
    wire.report(1, "other")
    assert wire.results["R0802"].status is HELD


def test_r0802_a_missing_answer_is_no_fault() -> None:
    wire = Wire()
    wire.report(1, confirmed=None)
    wire.report(1, "other")
    assert wire.results["R0802"].status is BROKEN


def test_the_evidence_is_bounded() -> None:
    wire = Wire()
    wire.report(2, "x" * 1_000_000)
    assert len(wire.results["R0800"].evidence[0].content) == 64 * 1024


@given(st.lists(st.sampled_from(["confirm", "fault", "lose"]), min_size=1, max_size=30))
def test_a_provider_as_it_is_specified_breaks_nothing(answers: list[str]) -> None:
    wire = Wire()
    number, content = 1, 0
    for answer in answers:
        confirmed = {"confirm": True, "fault": False, "lose": None}[answer]
        wire.report(number, f"content {content}", confirmed=confirmed)
        if answer == "confirm":
            number, content = number + 1, content + 1
        elif answer == "fault":
            content += 1
    assert BROKEN not in wire.statuses


def test_nothing_false_is_found_where_a_part_is_not_seen() -> None:
    events: list[Event] = []
    for session in ("a", "b"):
        for number in range(1, 30):
            content = f"content {number}"
            report = RequestReceived(number, session, number, content, content.encode())
            for _ in range(1 + number % 2):
                events += [report, RequestAnswered(number, session, number, True)]
    for seed in range(100):
        assert broken_between_gaps(sdpi_rules(), events, seed) == [], f"seed {seed}"
