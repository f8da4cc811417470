"""Budgets for tests of what is judged while a consumer works: without end, and spent."""

from __future__ import annotations

import random
from collections.abc import Sequence

from instep.conformance import (
    Event,
    JudgingBudget,
    LiveJudge,
    MessagesSkipped,
    RequestReceived,
    RuleBook,
)

ENDLESS_S = 1e6


def endless() -> JudgingBudget:
    """A budget of which all is there at once."""
    budget = JudgingBudget(lambda: 0.0, lambda: 0.0, most_s=ENDLESS_S)
    budget.spend(-ENDLESS_S)
    return budget


def spent() -> JudgingBudget:
    """A budget of which nothing is left, and never will be."""
    return JudgingBudget(lambda: 0.0, lambda: 0.0)


def broken_between_gaps(book: RuleBook, events: Sequence[Event], seed: int) -> list[str]:
    """The rules that are found broken by somebody who has no time for all requests, over and over
    again. Answers come all the same, as late ones do.
    """
    rng, told = random.Random(seed), list[str]()
    judged = LiveJudge(book, "peer", endless(), lambda _, rule, __: told.append(rule))
    skips = False
    for event in events:
        skips = skips != (rng.random() < 0.1)
        if isinstance(event, RequestReceived) and skips:
            judged.take(MessagesSkipped(event.at_us, 0, 1))
        else:
            judged.take(event)
        while judged.waits:
            judged.step()
    return told
