"""Senders that break one duty each, and one that holds them all, judged by what they sent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from instep.conformance import (
    ConformanceReport,
    Event,
    ResendRequested,
    RuleStatus,
    TraceJudge,
)
from instep.sequencing import Close
from instep_didcomm.conformance import didcomm_rules
from tests.instep.conformance.live_kit import broken_between_gaps
from tests.instep_didcomm.listener_kit import AUCTION, BID, MemoryIntake, plain, post, serving

LATER_US = 60_000_000
SCOPE = "lot-7 did:ex:alice"
BEHIND_S = 0.25


def judged(events: list[Event], ahead_us: int = 0) -> ConformanceReport:
    judging = TraceJudge(didcomm_rules())
    for event in events:
        judging.observe(event)
    return judging.report(events[-1].at_us + ahead_us)


def broken(report: ConformanceReport) -> list[str]:
    return [one.rule.removeprefix("didcomm-") for one in report.broken]


Send = Callable[..., Awaitable[None]]


async def _not_counted(send: Send) -> None:
    await send(plain(1))
    await asyncio.sleep(BEHIND_S)
    await send(plain(1))


async def _same_id(send: Send) -> None:
    await send(plain(1, id="a"), plain(2, id="a"))


async def _other_body(send: Send) -> None:
    await send(plain(1), plain(1, body={"amount": 7}, sent_count=2))


async def _other_id(send: Send) -> None:
    await send(plain(1), plain(1, id="other", sent_count=2))


async def _other_headers(send: Send) -> None:
    await send(plain(1, created_time=1), plain(1, created_time=2, sent_count=2))


async def _nested(send: Send) -> None:
    message = plain(1)
    del message["sender_order"]
    await send({**message, "custom_headers": {"sender_order": 1}})


async def _of_nobody(send: Send) -> None:
    await send(plain(1, **{"from": None, "type": "https://didcomm.org/chat/1.0/line"}))


async def _of_nobody_in_a_sequence(send: Send) -> None:
    await send(plain(1, **{"from": None}))


async def _order_0(send: Send) -> None:
    await send(plain(0))


async def _order_as_text(send: Send) -> None:
    await send(plain(1, sender_order="1"))


async def _gaps_above(send: Send) -> None:
    await send(plain(1, received_orders=[{"id": "did:ex:bob", "last": 2, "gaps": [3]}]))


async def _never_gives_up(send: Send) -> None:
    await send(plain(1), closed=True)
    for count in range(1, 6):
        await send(plain(2, sent_count=count))


async def _forgotten(send: Send) -> None:
    await send(plain(1), plain(3), asked=((2, 2),))


VARIANTS: dict[Callable[[Send], Awaitable[None]], list[str]] = {
    _not_counted: ["copies-counted"],
    _same_id: ["ids-unique"],
    _other_body: ["content-repeated"],
    _other_id: ["content-repeated"],
    _other_headers: ["headers-repeated"],
    _nested: ["well-formed"],
    _of_nobody: ["sender-named"],
    _of_nobody_in_a_sequence: ["sender-named"],
    _order_0: ["well-formed"],
    _order_as_text: ["well-formed"],
    _gaps_above: ["well-formed"],
    _never_gives_up: ["gives-up"],
    _forgotten: ["sent-again"],
}


async def trace_of(variant: Callable[[Send], Awaitable[None]]) -> list[Event]:
    events: list[Event] = []
    intake = MemoryIntake()
    async with serving(intake) as (listener, _):
        listener.record(events.append)

        async def send(
            *messages: dict[str, Any],
            closed: bool = False,
            asked: tuple[tuple[int, int], ...] = (),
        ) -> None:
            for message in messages:
                await post(listener.address, message)
            if closed:
                sequencer = intake.sequencers[SCOPE]
                sequencer.apply([Close()], 0)
                sequencer.committed(sequencer.checkpoint())
            if asked:
                events.append(ResendRequested(events[-1].at_us, SCOPE, asked))

        await variant(send)
    return events


@pytest.mark.asyncio
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda one: one.__name__.strip("_"))
async def test_a_sender_that_breaks_a_duty_is_named_by_it(
    variant: Callable[[Send], Awaitable[None]],
) -> None:
    report = judged(await trace_of(variant), LATER_US)
    assert broken(report) == VARIANTS[variant]
    assert all(one.reason and one.evidence for one in report.broken)


@pytest.mark.asyncio
async def test_what_a_stranger_sends_is_no_mistake_of_a_sender() -> None:
    async def strange(send: Send) -> None:
        await send({"id": 7}, {"hello": "world"})

    assert await trace_of(strange) == []


@pytest.mark.asyncio
async def test_a_sender_that_holds_all_duties_is_not_accused() -> None:
    async def holds(send: Send) -> None:
        await send(plain(1), plain(3), asked=((2, 2),))
        await send(plain(2, sent_count=2), plain(2, sent_count=2))
        await send(plain(3, sent_count=2, please_ack=[""]))

    report = judged(await trace_of(holds), LATER_US)
    assert broken(report) == []
    held = {one.rule for one in report.results if one.status is RuleStatus.HELD}
    assert held >= {f"didcomm-{one}" for one in ("sent-again", "copies-counted", "ids-unique")}
    assert AUCTION["type"] == BID.replace("bid", "*")


@pytest.mark.asyncio
async def test_nothing_false_is_found_where_a_part_is_not_seen() -> None:
    async def holds(send: Send) -> None:
        for number in (1, 3, 2, 5, 4, 6, 8, 7):
            await send(plain(number), plain(number, sent_count=2))

    events = await trace_of(holds)
    for seed in range(40):
        assert broken_between_gaps(didcomm_rules(), events, seed) == [], f"seed {seed}"
