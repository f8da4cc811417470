"""What peers can add to a log is bounded by what they sent, and told at a bounded rate."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from instep.runtime.health import ConsumerEvent
from instep.runtime.sampling import PEER_EVENTS, EventBuffer, EventSampler, LineSampler

LINE = 150
KINDS = sorted(PEER_EVENTS)


def event(kind: str, number: int = 0) -> ConsumerEvent:
    return ConsumerEvent(number, "c", "", kind, "")


@given(
    st.lists(
        st.tuples(
            st.sampled_from(KINDS),
            st.integers(min_value=1, max_value=3_000),
            st.integers(min_value=0, max_value=1_000),
            st.floats(min_value=0, max_value=5),
        ),
        max_size=120,
    )
)
def test_it_is_never_more_than_was_received_but_for_a_line_of_each_kind(
    steps: list[tuple[str, int, int, float]],
) -> None:
    sampler, now_s, received, told, free = EventSampler(), 0.0, 0, 0, 0
    first: set[str] = set()
    for kind, size, more, passed_s in steps:
        now_s, received = now_s + passed_s, received + more
        if sampler.admits(kind, size, received, now_s):
            told += size
            if kind not in first:
                first.add(kind)
                free += size
        for one in sampler.left_out(now_s):
            told += LINE * sampler.admits_summary(one.kind, LINE, received, now_s)
        assert told <= max(received, free) + free


def test_a_flood_is_told_a_few_times_a_second_and_counted() -> None:
    sampler, told = EventSampler(), 0
    received = 1 << 30
    for number in range(10_000):
        told += sampler.admits("ask-resend", LINE, received + number, number / 1_000)
    # Ten at once and two a second, as long as what is saved up suffices.
    assert 10 <= told <= 10 + 2 * 10
    (left_out,) = sampler.left_out(10.0, 0.0)
    assert (left_out.kind, left_out.count + told) == ("ask-resend", 10_000)
    assert sampler.admits_summary("ask-resend", LINE, received + 20_000, 10.0)
    assert sampler.left_out(20.0) == []


def test_a_flood_of_one_kind_hides_no_other() -> None:
    sampler = EventSampler()
    for number in range(1_000):
        sampler.admits("ask-resend", LINE, 128 * number, number / 100)
    for kind in ("sequence-failed", "blocked", "quarantined", "loss", "fault"):
        assert sampler.admits(kind, LINE, 128_000, 10.0)
    for kind in ("failed", "stopped", "aligned", "disconnected", "restarted", "loop-lag"):
        for _ in range(100):
            assert sampler.admits(kind, LINE, 0, 10.0)


def test_what_honest_senders_paid_for_is_not_spent_by_a_stranger() -> None:
    sampler = EventSampler()
    sampler.admits("ask-resend", LINE, 1 << 40, 0.0)
    told = sum(sampler.admits("ask-resend", LINE, 1 << 40, float(at)) for at in range(599))
    assert told * LINE <= 16 * 1024


def test_of_a_small_gap_its_failure_is_told() -> None:
    """An honest sender of three small messages, long after others."""
    sampler = EventSampler()
    for kind in KINDS:
        sampler.admits(kind, LINE, 100 * LINE, 0.0)
    received = 100 * LINE
    sampler._left_bytes = 0
    received += 3 * 128
    for at in range(3):
        sampler.admits("ask-resend", LINE, received, 100.0 + at)
    assert sampler.admits("sequence-failed", LINE, received, 104.0)


def test_a_kind_is_told_every_ten_minutes_whatever_it_costs() -> None:
    sampler = EventSampler()
    times = [at for at in range(3_600) if sampler.admits("ask-resend", LINE, 0, float(at))]
    assert times == [0, 600, 1_200, 1_800, 2_400, 3_000]
    (left_out,) = sampler.left_out(3_600.0)
    assert left_out.count == 3_594
    assert not sampler.admits_summary("ask-resend", LINE, 0, 3_599.0)
    assert sampler.admits_summary("ask-resend", LINE, 0, 3_600.0)


def test_where_nothing_listens_every_event_is_told() -> None:
    sampler = EventSampler()
    assert all(sampler.admits("deviation", LINE, None, 0.0) for _ in range(1_000))


def test_lines_of_one_place_are_told_a_few_times_and_then_counted() -> None:
    sampler = LineSampler()
    here, there = ("a.py", 1), ("a.py", 2)
    assert sum(sampler.admits(here, 0.0, traceback=False) for _ in range(100)) == 10
    assert sum(sampler.admits(there, 0.0, traceback=True) for _ in range(100)) == 2
    assert sampler.left_out(29.0) == []
    found = {site: one.count for site, one in sampler.left_out(31.0)}
    assert found == {here: 90, there: 98}
    assert sampler.left_out(31.0) == []
    assert sampler.admits(here, 31.0, traceback=False)


def test_the_places_that_are_known_are_bounded() -> None:
    sampler = LineSampler()
    for line in range(5_000):
        sampler.admits(("a.py", line), 0.0, traceback=False)
    assert len(sampler._sites) == 1_000


def test_a_reader_that_is_slow_loses_none_that_matters() -> None:
    buffer = EventBuffer(100)
    buffer.append(event("aligned"))
    for number in range(1_000):
        buffer.append(event("ask-resend", number))
        if number == 500:
            buffer.append(event("sequence-failed"))
    buffer.append(event("failed"))
    kinds = Counter[str]()
    numbers = []
    while buffer:
        one = buffer.popleft()
        kinds[one.kind] += 1
        if one.kind == "ask-resend":
            numbers.append(one.at_us)
    assert kinds == {"aligned": 1, "sequence-failed": 1, "failed": 1, "ask-resend": 97}
    assert numbers == list(range(903, 1_000))


@given(st.lists(st.sampled_from(["a", "b", "c"]), max_size=60), st.integers(0, 1_000))
def test_it_keeps_the_order(kinds: list[str], seed: int) -> None:
    buffer, rng, read = EventBuffer(10), random.Random(seed), []
    for number, kind in enumerate(kinds):
        buffer.append(event(kind, number))
        assert len(buffer) <= 10
        while buffer and rng.random() < 0.2:
            read.append(buffer.popleft().at_us)
    while buffer:
        read.append(buffer.popleft().at_us)
    assert read == sorted(set(read))
