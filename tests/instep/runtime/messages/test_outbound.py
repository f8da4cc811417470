"""What is owed and asked goes out peer by peer: bounded, tried again, and settled once."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from instep import Environment, IntakeSettings, SourceError
from instep.ports.message_store import Obligation
from instep.runtime.messages.outbound import EffectDispatcher
from instep.sequencing import AskResend, Refusal, ReportFault, ReportLoss, SequenceEffect
from tests.instep.runtime.messages.intake_kit import Speaker

pytestmark = pytest.mark.asyncio

FAULT = ReportFault([(2, 2)], Refusal.EXPIRED)
ASK = AskResend([(1, 1)])


class Post(Speaker):
    """Peers of which some never answer, and some are away."""

    def __init__(self) -> None:
        super().__init__()
        self.tarpits: set[str] = set()
        self.away: Counter[str] = Counter()
        """Peer → how often it is away yet."""
        self.mistakes: dict[str, BaseException] = {}
        self.under_way: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.go = asyncio.Event()
        self.sent: list[tuple[str, SequenceEffect]] = []

    async def carry_out(self, scope: str, effect: SequenceEffect) -> None:
        peer = self.peer_of(scope)
        for name in (peer, ""):
            self.under_way[name] += 1
            self.most[name] = max(self.most[name], self.under_way[name])
        try:
            if peer in self.tarpits:
                await self.go.wait()
            await asyncio.sleep(0)
            if peer in self.mistakes:
                raise self.mistakes[peer]
            if self.away[peer]:
                self.away[peer] -= 1
                raise SourceError("away", where=peer)
            self.sent.append((scope, effect))
        finally:
            for name in (peer, ""):
                self.under_way[name] -= 1


class Outgoing:
    def __init__(self, settings: IntakeSettings) -> None:
        self.post = Post()
        self.settled: list[int] = []
        self.asked: list[str] = []
        self.dispatcher = EffectDispatcher(
            self.post,
            settings,
            Environment(rng=random.Random(1)),
            emit=lambda scope, kind, _text: self.events.append((scope, kind)),
            settled=lambda number, _sent: self.settled.append(number),
            asked=self.asked.append,
        )
        self.events: list[tuple[str, str]] = []

    def put(self, scope: str, effect: SequenceEffect, number: int | None = None) -> None:
        self.dispatcher.put(scope, self.post.peer_of(scope), effect, number)

    async def until(self, done: Callable[[], object]) -> None:
        async with asyncio.timeout(10):
            while not done():
                await asyncio.sleep(0.001)


@asynccontextmanager
async def dispatching(**limits: float) -> AsyncIterator[Outgoing]:
    settings = IntakeSettings(effects_retry_initial_s=0.001, effects_retry_max_s=0.01, **limits)  # type: ignore[arg-type]
    at = Outgoing(settings)
    task = asyncio.create_task(at.dispatcher.run())
    try:
        yield at
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_a_peer_that_never_answers_holds_up_no_other() -> None:
    """S12: each peer has slots of its own."""
    async with dispatching(effects_at_once=4, effects_per_peer=2) as at:
        at.post.tarpits = {"eve"}
        for n in range(100):
            at.put(f"{n} eve", FAULT, n)
        at.put("1 bob", ASK)
        await at.until(lambda: at.asked)
        assert at.post.sent == [("1 bob", ASK)]
        assert at.post.most["eve"] == 2
        at.post.go.set()
        await at.until(lambda: len(at.settled) == 100)
        assert sorted(at.settled) == list(range(100))
        assert (at.post.most["eve"], at.post.most[""]) <= (2, 4)


async def test_no_more_are_under_way_than_are_allowed() -> None:
    async with dispatching(effects_at_once=3) as at:
        at.post.tarpits = {f"p{n}" for n in range(10)}
        for n in range(10):
            at.put(f"t p{n}", FAULT, n)
        await at.until(lambda: at.post.under_way[""] == 3)
        at.post.go.set()
        await at.until(lambda: len(at.settled) == 10)
        assert at.post.most[""] == 3


async def test_what_is_owed_is_tried_again_and_then_given_up() -> None:
    async with dispatching(effects_attempts=3) as at:
        at.post.away.update({"bob": 2, "eve": 99})
        at.put("1 bob", FAULT, 1)
        at.put("1 eve", FAULT, 2)
        await at.until(lambda: len(at.settled) == 2)
        assert at.post.sent == [("1 bob", FAULT)]
        assert at.post.away["eve"] == 99 - 3
        assert at.events.count(("1 eve", "not-sent")) == 3


@pytest.mark.parametrize("error", [ValueError("no URL"), asyncio.CancelledError()], ids=repr)
async def test_a_mistake_with_one_effect_ends_no_other(error: BaseException) -> None:
    async with dispatching(effects_attempts=2) as at:
        at.post.mistakes["eve"] = error
        at.put("1 eve", ASK)
        at.put("1 eve", FAULT, 1)
        at.put("1 bob", FAULT, 2)
        await at.until(lambda: len(at.settled) == 2)
        assert at.post.sent == [("1 bob", FAULT)]
        assert at.asked == ["1 eve"]
        assert at.events.count(("1 eve", "not-sent")) == 3


async def test_what_is_not_owed_is_tried_once() -> None:
    async with dispatching() as at:
        at.post.away["bob"] = 99
        at.put("1 bob", ASK)
        at.put("1 bob", ReportLoss([(1, 1)], "away"))
        await at.until(lambda: at.post.away["bob"] == 97)
        await at.until(lambda: at.asked == ["1 bob"])
        assert not at.dispatcher.is_asking("1 bob")


async def test_of_two_requests_that_wait_the_newer_goes_out() -> None:
    async with dispatching(effects_per_peer=1) as at:
        at.post.tarpits = {"bob"}
        at.put("1 bob", FAULT, 1)
        await at.until(lambda: at.post.under_way["bob"])
        at.put("2 bob", ASK)
        newer = AskResend([(1, 1), (3, 3)])
        at.put("2 bob", newer)
        at.post.go.set()
        await at.until(lambda: at.asked)
        assert at.post.sent == [("1 bob", FAULT), ("2 bob", newer)]
        assert at.asked == ["2 bob"]


async def test_the_oldest_of_too_many_is_left_out_and_told() -> None:
    async with dispatching(effects_waiting=3, effects_per_peer=1) as at:
        at.post.tarpits = {"eve"}
        at.put("0 eve", FAULT, 0)
        await at.until(lambda: at.post.under_way["eve"])
        for n in range(1, 6):
            at.put(f"{n} eve", FAULT, n)
        assert at.settled == [1, 2]
        assert [scope for scope, kind in at.events if kind == "not-sent"] == ["1 eve", "2 eve"]
        at.post.go.set()
        await at.until(lambda: len(at.settled) == 6)
        assert [scope for scope, _ in at.post.sent] == ["0 eve", "3 eve", "4 eve", "5 eve"]


async def test_what_the_store_says_is_owed_goes_out_once() -> None:
    async with dispatching() as at:
        owed = [Obligation(n, f"{n} bob", "bob", FAULT) for n in (4, 7)]
        at.dispatcher.restore(owed)
        at.dispatcher.restore(owed)
        await at.until(lambda: len(at.settled) == 2)
        # Sent, and not yet forgotten by the store: it is not sent again.
        at.dispatcher.restore(owed)
        await asyncio.sleep(0.02)
        assert [scope for scope, _ in at.post.sent] == ["4 bob", "7 bob"]
        assert at.events == []
        at.dispatcher.forget([4, 7])
        at.dispatcher.restore([Obligation(8, "8 bob", "bob", FAULT)])
        await at.until(lambda: len(at.settled) == 3)
