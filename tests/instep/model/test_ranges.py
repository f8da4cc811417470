"""Ranges of message numbers against Python's own sets."""

from __future__ import annotations

import itertools

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from instep.model.ranges import RangeMap, Ranges, RangesError

TOP = 40
NUMBERS = st.integers(0, TOP)
SETS = st.sets(NUMBERS)
PAIRS = st.tuples(NUMBERS, NUMBERS).map(lambda pair: (min(pair), max(pair)))


class RangesMachine(RuleBasedStateMachine):
    """Every change, in any order, against a set that had the same change."""

    def __init__(self) -> None:
        super().__init__()
        self.ranges = Ranges()
        self.model: set[int] = set()

    @rule(number=NUMBERS)
    def add(self, number: int) -> None:
        self.ranges.add(number)
        self.model.add(number)

    @rule()
    def add_next(self) -> None:
        self.add(max(self.model, default=-1) + 1)

    @rule(pair=PAIRS)
    def add_range(self, pair: tuple[int, int]) -> None:
        self.ranges.add_range(*pair)
        self.model.update(range(pair[0], pair[1] + 1))

    @rule(numbers=SETS)
    def add_sorted(self, numbers: set[int]) -> None:
        self.ranges.add_sorted(sorted(numbers))
        self.model |= numbers

    @rule(pair=PAIRS)
    def remove(self, pair: tuple[int, int]) -> None:
        self.ranges.remove(*pair)
        self.model.difference_update(range(pair[0], pair[1] + 1))

    @rule(numbers=SETS)
    def update(self, numbers: set[int]) -> None:
        self.ranges.update(Ranges.of_numbers(numbers))
        self.model |= numbers

    @rule(numbers=SETS)
    def subtract(self, numbers: set[int]) -> None:
        self.ranges.subtract(Ranges.of_numbers(numbers))
        self.model -= numbers

    @invariant()
    def same(self) -> None:
        assert list(self.ranges) == sorted(self.model)
        assert self.ranges.count() == len(self.model)
        assert (self.ranges.first, self.ranges.last) == (
            min(self.model, default=None),
            max(self.model, default=None),
        )
        assert bool(self.ranges) == bool(self.model)

    @invariant()
    def canonical(self) -> None:
        flat = list(itertools.chain.from_iterable(self.ranges.pairs()))
        assert all(low <= high for low, high in self.ranges.pairs())
        ends = zip(flat[1::2], flat[2::2], strict=False)
        assert all(high + 1 < low for high, low in ends), "two ranges touch"


TestRanges = pytest.mark.hypothesis(RangesMachine.TestCase)


@given(SETS, SETS)
def test_algebra_is_that_of_sets(left: set[int], right: set[int]) -> None:
    a, b = Ranges.of_numbers(left), Ranges.of_numbers(right)
    assert list(a | b) == sorted(left | right)
    assert list(a - b) == sorted(left - right)
    assert (a == b) == (left == right)
    assert list(a) == sorted(left), "an operand was changed"


@given(SETS, PAIRS)
def test_questions_are_answered_as_a_set_would(numbers: set[int], pair: tuple[int, int]) -> None:
    ranges, (low, high) = Ranges.of_numbers(numbers), pair
    assert [number in ranges for number in range(TOP + 2)] == [
        number in numbers for number in range(TOP + 2)
    ]
    gaps = [n for first, last in ranges.gaps(low, high) for n in range(first, last + 1)]
    assert gaps == [n for n in range(low, high + 1) if n not in numbers]
    assert ranges.end_of(low) == next(n for n in itertools.count(low) if n not in numbers)
    assert ranges.next_member(low) == min((n for n in numbers if n >= low), default=None)


@given(SETS)
def test_text_and_bytes_come_back(numbers: set[int]) -> None:
    ranges = Ranges.of_numbers(numbers)
    assert Ranges.parse(str(ranges)) == ranges
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(ranges), type=Ranges) == ranges


def test_text_is_compact() -> None:
    assert str(Ranges.of((1, 7), (10, 10))) == "1-7,10"
    assert str(Ranges()) == ""
    assert Ranges.parse(" 10 , 3 - 7,1-4 ") == Ranges.of((1, 7), (10, 10))
    assert Ranges.parse("  ") == Ranges()


@pytest.mark.parametrize("text", ["a", "1-", "-1", "1--2", "1,,2", "1;2", "١", "9" * 21, "1 2"])
def test_a_text_that_is_no_ranges_is_named(text: str) -> None:
    with pytest.raises(RangesError, match=r"is not a number or a range.* — write them as"):
        Ranges.parse(text)


def test_a_range_that_ends_before_it_begins_changes_nothing() -> None:
    ranges = Ranges.of((1, 7))
    for change in (ranges.add_range, ranges.remove):
        with pytest.raises(RangesError, match="5-3 is not a range"):
            change(5, 3)
    with pytest.raises(RangesError, match="-1--1"):
        ranges.add(-1)
    with pytest.raises(RangesError, match="7-3"):
        Ranges.parse("7-3")
    assert str(ranges) == "1-7"


def test_a_copy_is_independent_and_nothing_is_hashable() -> None:
    ranges = Ranges.of((1, 7))
    copy = ranges.copy()
    copy.add(8)
    assert (str(ranges), str(copy)) == ("1-7", "1-8")
    with pytest.raises(TypeError):
        hash(ranges)


def test_ranges_as_wide_as_an_unsigned_long_cost_nothing() -> None:
    top = 2**64 - 1
    ranges = Ranges.of((0, top))
    ranges.remove(5, 5)
    assert ranges.count() == top
    assert list(itertools.islice(ranges, 6)) == [0, 1, 2, 3, 4, 6]
    assert str(ranges) == f"0-4,6-{top}"
    assert repr(ranges) == f"<Ranges 0-4,6-{top}>"


def test_size_follows_the_gaps_and_not_the_numbers() -> None:
    ranges = Ranges()
    for number in range(1, 1_000_001):
        ranges.add(number)
    assert len(msgspec.msgpack.encode(ranges)) < 20
    gappy = Ranges.of_numbers(range(1, 2001, 2))
    assert len(gappy.lows) == 1000
    assert repr(gappy) == "<Ranges 1000 ranges>"


def test_a_number_that_comes_twice_does_not_fill_the_gap_behind_it() -> None:
    assert Ranges.of_numbers([3, 1, 1]) == Ranges.of((1, 1), (3, 3))


@given(st.lists(st.tuples(PAIRS, st.sampled_from(["a", "b", None]))), SETS)
def test_a_map_of_ranges_is_that_of_a_dict(
    changes: list[tuple[tuple[int, int], str | None]], removed: set[int]
) -> None:
    ranges, model = RangeMap[str](), dict[int, str]()
    for (low, high), value in changes:
        for number in range(low, high + 1):
            model.pop(number, None)
            if value is not None:
                model[number] = value
        if value is None:
            ranges.remove(low, high)
        else:
            ranges.set_range(low, high, value)
    ranges.subtract(Ranges.of_numbers(removed))
    model = {number: value for number, value in model.items() if number not in removed}
    assert {n: ranges.get(n) for n in range(TOP + 2)} == {n: model.get(n) for n in range(TOP + 2)}
    assert ranges.ranges() == Ranges.of_numbers(model)
    assert all((number in ranges) is (number in model) for number in range(TOP + 2))
    parts = list(ranges.items())
    for (_, high, value), (low, _, following) in itertools.pairwise(parts):
        assert high < low
        assert high + 1 < low or value != following, "two ranges could be one"
    assert msgspec.json.decode(msgspec.json.encode(ranges), type=RangeMap[str]) == ranges
    copied = ranges.copy()
    copied.set_range(0, TOP, "c")
    assert list(ranges.items()) == parts
