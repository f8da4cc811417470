"""A provider that is judged while a consumer works: in windows, at a cost that is bounded."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator

import pytest

from instep.conformance import (
    ConnectionOpened,
    Event,
    JudgingBudget,
    LiveJudge,
    MessageReceived,
    MessagesSkipped,
    ResponseReceived,
    RuleBroken,
    event_line,
    judge,
    read_events,
)
from instep.conformance.live import LARGEST_BYTES
from instep_tapi.conformance.book import tapi_rules
from tests.instep_tapi.conformance.test_no_false_findings import LONG_SEEDS, SEEDS, life
from tests.instep_tapi.conformance.test_variants import FOUND, lived, lived_to_show


class Clock:
    """A processor that takes `cost_s` between two looks, and so for each event that is judged."""

    def __init__(self, cost_s: float = 0.0) -> None:
        self.cost_s = cost_s
        self.now_s = 0.0

    def processor_s(self) -> float:
        """The time now, later with each look."""
        self.now_s += self.cost_s
        return self.now_s


class Live:
    """A judge of all that it is given."""

    def __init__(self, most_s: float = 1e6, cost_s: float = 0.0) -> None:
        self.clock = Clock(cost_s)
        budget = JudgingBudget(self.clock.processor_s, lambda: 0.0, most_s=most_s)
        budget.spend(-most_s)
        self.told: list[tuple[str, str]] = []
        self.judge = LiveJudge(tapi_rules(), "p", budget, self._tell)

    def _tell(self, stream: str, rule: str, _: RuleBroken) -> None:
        self.told.append((stream, rule))

    def take(self, event: Event) -> None:
        """Take an event, and judge all that waits."""
        self.judge.take(event)
        while self.judge.waits:
            self.judge.step()

    @property
    def broken(self) -> set[str]:
        return {one.rule for one in self.judge.report().broken}


def with_gaps(trace: list[Event], rng: random.Random) -> Iterator[Event]:
    """The trace as somebody sees it who has no time for all of it, over and over again."""
    skips = False
    for event in trace:
        if rng.random() < 0.02:
            skips = not skips
        if skips and isinstance(event, MessageReceived):
            yield MessagesSkipped(event.at_us, event.connection, 1)
        else:
            yield event


def judged_in_windows(seed: int) -> tuple[int, int]:
    """Judge the windows of a life; returns how many messages were judged, and how many were not."""
    rng = random.Random(seed)
    judged = Live()
    for event in with_gaps(life(seed).trace, rng):
        judged.take(event)
    report = judged.judge.report()
    assert {one.rule: one.reason for one in report.broken} == {}, f"seed {seed}"
    return report.messages, report.messages_skipped


def test_nothing_false_is_found_in_the_windows_of_conforming_providers() -> None:
    judged, skipped = zip(*(judged_in_windows(seed) for seed in range(SEEDS // 2)), strict=True)
    assert sum(judged) > 1_000
    assert sum(skipped) > 1_000


@pytest.mark.long
@pytest.mark.timeout(900)
def test_nothing_false_is_found_in_the_windows_of_500_seeds() -> None:
    for seed in range(SEEDS // 2, LONG_SEEDS):
        judged_in_windows(seed)


NEED_THE_WHOLE_LOG = {
    "at-least-once", "start-oldest", "token-next", "token-used", "token-old", "delay-kept",
    "latest-kept", "tombstones-kept", "retention-kept", "history-kept", "all-streamed",
    "none-bogus", "compaction", "whole-records", "get-agrees", "parent-true",
}  # fmt: skip
NEED_MORE = {
    "idle-kept", "pong-timeout", "second-client", "slow-alone", "slow-dropped", "slow-kept",
    "slow-lossless", "token-accepted",
}  # fmt: skip
"""Several connections, or one that a consumer does not have."""


@pytest.mark.parametrize("deviates", FOUND)
def test_a_deviation_is_found_while_a_consumer_works(deviates: str) -> None:
    judged = Live()
    for event in lived_to_show(deviates).trace:
        judged.take(event)
    found = {rule.removeprefix("tapi-") for rule in judged.broken}
    # What needs all of a log may be cut by the end of a window.
    assert FOUND[deviates] - NEED_THE_WHOLE_LOG - NEED_MORE <= found <= FOUND[deviates]
    assert {rule.removeprefix("tapi-") for _, rule in judged.told} == found
    assert all(one.reason and one.evidence for one in judged.judge.report().broken)


def test_what_is_judged_costs_no_more_than_the_budget() -> None:
    world = lived("")
    live = Live(most_s=0.05, cost_s=1e-4)
    for event in world.trace:
        if not isinstance(event, MessageReceived) or live.judge.room() > 0:
            live.take(event)
        else:
            live.take(MessagesSkipped(event.at_us, event.connection, 1))
    report = live.judge.report()
    # One of a hundred of what the process takes, and what there was at first.
    assert report.messages * 1e-4 <= 0.05 + 0.02 * live.clock.now_s
    assert report.messages + report.messages_skipped == sum(
        isinstance(event, MessageReceived) for event in world.trace
    )
    assert 0 < report.messages < report.messages_skipped


def test_before_it_knows_what_a_message_costs_it_judges_one() -> None:
    """On a machine on which a message takes all that there is."""
    live = Live(most_s=0.01, cost_s=0.02)
    live.judge.take(ConnectionOpened(1, 1, "s"))
    content = b"{}" * 500
    for number in range(100):
        if live.judge.room() > 0:
            live.judge.take(MessageReceived(number + 2, 1, content))
    waiting = 0
    while live.judge.waits:
        live.judge.step()
        waiting += 1
    assert waiting == 2
    assert live.judge.report().messages == 1


def test_memory_is_bounded_whatever_comes() -> None:
    live = Live()
    frames = [one for one in lived("").trace if isinstance(one, MessageReceived)]
    tracemalloc.start()
    try:
        live.take(ConnectionOpened(1, 1, "s"))
        for number in range(4_000):
            # As large as it may be, and each with a token of its own.
            content = frames[number % len(frames)].content
            content = content.replace(b'"token":"', b'"token":"%d' % number)
            live.take(MessageReceived(number, 1, content + b" " * 20_000))
            if number % 20 == 0:
                live.take(ConnectionOpened(number, number + 2, "s"))
                path = f"/{number}"
                live.take(ResponseReceived(number, path, 200, b"{}" * 50_000))
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 32 * 1024 * 1024


def test_what_waits_is_bounded_and_a_large_message_is_skipped() -> None:
    live = Live()
    live.judge.take(ConnectionOpened(1, 1, "s"))
    live.judge.take(MessageReceived(2, 1, b"x" * (LARGEST_BYTES + 1)))
    assert live.judge.report().messages_skipped == 1
    for number in range(100_000):
        live.judge.take(ConnectionOpened(number, number, "s"))
    waiting = 0
    while live.judge.waits:
        live.judge.step()
        waiting += 1
    assert waiting < 10_000


def test_the_last_events_can_be_had_as_a_trace() -> None:
    live = Live()
    world = lived("no-key")
    for event in world.trace:
        live.take(event)
    events = live.judge.copy_trace()
    read = list(read_events([event_line(one) for one in events]))
    assert read == events
    assert "tapi-entity-key" in {one.rule for one in judge(tapi_rules(), events).broken}
