"""Which entity is asked for next, and what the answers prove (A12, A17)."""

from __future__ import annotations

from instep.alignment.audit import Finding, Verdict
from instep.alignment.lookups import (
    DueLookup,
    LookupReason,
    LookupResult,
    LookupScheduler,
    WrongEntities,
)
from instep.model.lookups import LookupAnswer, LookupVerdict

SHOWN = LookupAnswer(LookupVerdict.SHOWN, b'{"uuid":"n"}')
OTHER = LookupAnswer(LookupVerdict.SHOWN, b'{"uuid":"n","x":1}')
ABSENT = LookupAnswer(LookupVerdict.ABSENT)
UNKNOWN = LookupAnswer(LookupVerdict.UNKNOWN, reason="it hangs")


class Looks:
    """The looks at one stream, with a confirmation of 30 s."""

    def __init__(self, share: float = 0.0) -> None:
        self.now_s = 1_000.0
        self.looks = LookupScheduler(share, 30.0, self.now_s)

    def answered(
        self,
        key: str,
        answer: LookupAnswer,
        *,
        agrees: bool = False,
        token: str = "t",
        lacks_s: float = 0.0,
        entity_class: str = "NODE",
    ) -> LookupResult | None:
        return self.looks.answered(
            key,
            entity_class,
            token,
            answer,
            self.now_s,
            agrees=agrees,
            known_s=self.now_s - lacks_s,
        )

    def due(self, unproven: int = 0) -> DueLookup | None:
        return self.looks.due(self.now_s, unproven=unproven)


def test_what_agrees_is_right_at_once() -> None:
    assert Looks().answered("n", SHOWN, agrees=True) is LookupResult.RIGHT


def test_a_difference_counts_after_a_second_look() -> None:
    it = Looks()
    assert it.answered("n", SHOWN) is None
    assert it.due() is None
    it.now_s += 29
    assert it.due() is None
    it.now_s += 1
    assert it.due() == DueLookup(LookupReason.AGAIN, "n", "NODE")
    assert it.answered("n", SHOWN) is LookupResult.STALE
    assert it.due() is None


def test_a17_what_the_stream_may_not_have_stated_yet_does_not_count() -> None:
    it = Looks()
    it.answered("n", SHOWN)
    it.now_s += 30
    assert it.answered("n", SHOWN, lacks_s=31) is None
    it.now_s += 30
    assert it.answered("n", SHOWN, lacks_s=31) is LookupResult.STALE


def test_a_row_that_has_changed_or_another_answer_begins_anew() -> None:
    it = Looks()
    it.answered("n", SHOWN)
    it.now_s += 30
    assert it.answered("n", SHOWN, token="t2") is None
    it.now_s += 30
    assert it.answered("n", OTHER, token="t2") is None
    it.now_s += 30
    assert it.answered("n", OTHER, token="t2") is LookupResult.STALE


def test_what_changes_all_the_time_is_left_to_the_next_cycle() -> None:
    it = Looks()
    for number in range(20):
        assert it.answered("n", SHOWN, token=str(number)) is None
        if it.due() is None:
            it.now_s += 30
        if it.due() is None:
            break
    assert 5 < number < 12


def test_a_difference_that_is_gone_is_none() -> None:
    it = Looks()
    it.answered("n", SHOWN)
    it.now_s += 30
    assert it.answered("n", SHOWN, agrees=True) is LookupResult.RIGHT
    it.now_s += 300
    assert it.due() is None


def test_a17_an_absence_needs_a_control_and_a_second_look() -> None:
    it = Looks()
    assert it.answered("n", ABSENT) is None
    it.now_s += 30
    assert it.due() == DueLookup(LookupReason.CONTROL, "n", "NODE")
    assert it.answered("other", SHOWN, agrees=True) is LookupResult.RIGHT
    it.looks.controlled("n")
    assert it.due() == DueLookup(LookupReason.AGAIN, "n", "NODE")
    assert it.answered("n", ABSENT) is LookupResult.BOGUS


def test_what_was_shown_before_is_no_control() -> None:
    it = Looks()
    it.answered("other", SHOWN, agrees=True)
    it.answered("n", ABSENT)
    it.now_s += 30
    it.answered("link", SHOWN, agrees=True, entity_class="LINK")
    assert it.due() == DueLookup(LookupReason.CONTROL, "n", "NODE")
    assert it.answered("n", ABSENT) is None


def test_a_control_that_shows_nothing_proves_nothing() -> None:
    it = Looks()
    it.answered("n", ABSENT)
    it.now_s += 30
    it.answered("other", UNKNOWN)
    it.looks.controlled("n")
    it.now_s += 300
    assert it.due() is None


def test_an_answer_that_says_nothing_ends_a_difference() -> None:
    it = Looks()
    it.answered("n", SHOWN)
    it.answered("n", UNKNOWN)
    it.now_s += 30
    assert it.due() is None


def test_a_class_of_which_nothing_is_shown_is_left_alone_for_longer_each_time() -> None:
    it = Looks()
    waits = []
    for _ in range(9):
        for number in range(3):
            assert it.looks.allowed({"NODE", "LINK"}, it.now_s) == {"NODE", "LINK"}
            it.answered(f"n{number}", ABSENT)
        began_s = it.now_s
        while "NODE" not in it.looks.allowed({"NODE"}, it.now_s):
            assert it.looks.allowed({"NODE", "LINK"}, it.now_s) == {"LINK"}
            it.now_s += 60
        waits.append(it.now_s - began_s)
    assert waits == [60, 120, 240, 480, 960, 1_920, 3_600, 3_600, 3_600]
    it.answered("n", SHOWN, agrees=True)
    for number in range(3):
        it.answered(f"n{number}", UNKNOWN)
    # It was shown a moment ago.
    assert it.looks.allowed({"NODE"}, it.now_s) == {"NODE"}


def test_a_share_of_the_entities_has_its_turn_in_an_hour() -> None:
    it = Looks(share=0.25)
    end_s, looks = it.now_s + 3_600, 0
    while it.now_s < end_s:
        if it.due() == DueLookup(LookupReason.SAMPLE):
            looks += 1
            it.looks.sampled(1_000, it.now_s)
        it.now_s += 1
    assert 248 <= looks <= 252


def test_what_was_left_out_is_not_made_up_for_at_once() -> None:
    it = Looks(share=1.0)
    it.looks.sampled(3_600, it.now_s)
    it.now_s += 3_600
    looks = 0
    while it.due() is not None:
        looks += 1
        it.looks.sampled(3_600, it.now_s)
    assert looks <= 62


def test_nothing_is_sampled_without_a_share() -> None:
    it = Looks()
    it.now_s += 10_000
    assert it.due() is None


def test_what_is_unproven_comes_first_and_its_rounds_are_spaced_out() -> None:
    it = Looks(share=1.0)
    assert it.due(unproven=3) == DueLookup(LookupReason.UNPROVEN)
    it.looks.round_ended(it.now_s)
    assert it.due(unproven=3) == DueLookup(LookupReason.SAMPLE)
    it.now_s += 60
    assert it.due(unproven=3) == DueLookup(LookupReason.UNPROVEN)
    it.looks.round_ended(it.now_s)
    it.now_s += 60
    assert it.due(unproven=3) == DueLookup(LookupReason.SAMPLE)
    it.looks.attempt_ended(it.now_s)
    assert it.due(unproven=3) == DueLookup(LookupReason.UNPROVEN)
    assert it.due(unproven=0) == DueLookup(LookupReason.SAMPLE)


def test_differences_are_bounded() -> None:
    it = Looks()
    for number in range(5_000):
        it.answered(f"n{number}", SHOWN)
    it.now_s += 30
    again = set()
    while (look := it.due()) is not None:
        again.add(look.key)
        it.looks.gone(look.key)
    assert len(again) == 1_000


def finding(key: str, verdict: Verdict) -> Finding:
    return Finding(stream="s", key=key, entity_class="NODE", verdict=verdict, token="")


def test_an_entity_is_counted_once_whoever_found_it() -> None:
    wrong = WrongEntities()
    assert wrong.counts() is None
    assert wrong.looked("a", Verdict.STALE)
    assert not wrong.looked("a", Verdict.STALE)
    assert wrong.counts() == {"stale": 1}
    wrong.compared([finding("a", Verdict.STALE), finding("b", Verdict.MISSING)])
    assert not wrong.looked("a", Verdict.STALE)
    assert wrong.counts() == {"stale": 1, "missing": 1}
    assert not wrong.looked("a", None)
    assert wrong.counts() == {"missing": 1}
    wrong.compared()
    assert wrong.counts() == {}


def test_many_wrong_entities_are_counted_in_bounded_memory() -> None:
    wrong = WrongEntities()
    wrong.compared([finding(f"k{n}", Verdict.STALE) for n in range(25_000)])
    assert wrong.counts() == {"stale": 25_000}
    assert not wrong.looked("another", Verdict.BOGUS)
