"""Senders that break one duty each, and one that holds them all, judged by what they sent."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

import pytest

from instep.conformance import ConformanceReport, Event, RuleStatus, TraceJudge
from instep_wsr.conformance import wsr_rules
from instep_wsr.wire.names import WSR
from tests.instep.conformance.live_kit import broken_between_gaps
from tests.instep_wsr.wsr_kit import ACK, GROUP, ORDER, ORDERED, Site, body, request, running, stamp

LATER_US = 60_000_000
NOW_S = time.time()
EXPIRES = stamp(NOW_S + 3_000)


def judged(events: list[Event], ahead_us: int = 0) -> ConformanceReport:
    judging = TraceJudge(wsr_rules())
    for event in events:
        judging.observe(event)
    return judging.report(events[-1].at_us + ahead_us)


def broken(report: ConformanceReport) -> list[str]:
    return [one.rule.removeprefix("wsr-") for one in report.broken]


async def send(site: Site, *numbers: object, content: object = None, **changes: str) -> None:
    for number in numbers:
        stated = {"expires": EXPIRES, **changes}
        await site.say(request(number, **stated), body(number if content is None else content))


async def _order_alone(site: Site) -> None:
    await send(site, 0, features=ACK + ORDER)


async def _other_parameters(site: Site) -> None:
    await send(site, 0, more='groupMaxIdleDuration="PT1H"')
    await send(site, 1, more='groupMaxIdleDuration="PT2H"')


async def _other_content(site: Site) -> None:
    await send(site, 0)
    await send(site, 0, content="other")


async def _other_expiry(site: Site) -> None:
    await send(site, 0)
    await send(site, 0, expires=stamp(NOW_S + 3_100))


async def _beyond_last(site: Site) -> None:
    await send(site, 0)
    await send(site, 1, last="true")
    await send(site, 2)


async def _forgotten(site: Site) -> None:
    await send(site, 0, 2)


async def _unreadable(site: Site) -> None:
    await send(site, "three")


async def _not_to_be_understood(site: Site) -> None:
    header = request(0, expires=EXPIRES).replace(' s:mustUnderstand="1"', "")
    await site.say(header, body(0))


async def _never_gives_up(site: Site) -> None:
    await send(site, 0)
    await send(site, 1, last="true")
    await send(site, 2, 2, 2, 2, 2)


VARIANTS: dict[Callable[[Site], Awaitable[None]], list[str]] = {
    _order_alone: ["order-features"],
    _other_parameters: ["group-parameters"],
    _other_content: ["content-repeated"],
    _other_expiry: ["headers-repeated"],
    _beyond_last: ["none-beyond-last"],
    _forgotten: ["sent-again"],
    _unreadable: ["well-formed"],
    _not_to_be_understood: ["must-understand"],
    _never_gives_up: ["none-beyond-last", "gives-up"],
}


@pytest.mark.asyncio
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda one: one.__name__.strip("_"))
async def test_a_sender_that_breaks_a_duty_is_named_by_it(
    variant: Callable[[Site], Awaitable[None]],
) -> None:
    events: list[Event] = []
    async with running(recorder=events.append) as site:
        await variant(site)
    report = judged(events, LATER_US)
    assert broken(report) == VARIANTS[variant]
    assert all(one.evidence for one in report.broken)


@pytest.mark.asyncio
async def test_a_sender_that_holds_all_duties_is_not_accused() -> None:
    events: list[Event] = []
    async with running(recorder=events.append) as site:
        await send(site, 2, 0, 0)
        await send(site, 1, 2)
        await send(site, 3, last="true")
        await send(site, 3, last="true")
        assert await site.numbers(GROUP) == [0, 1, 2, 3]
    report = judged(events, LATER_US)
    assert broken(report) == []
    held = {one.rule for one in report.results if one.status is RuleStatus.HELD}
    assert held >= {f"wsr-{duty}" for duty in ("content-repeated", "sent-again", "order-features")}


@pytest.mark.asyncio
async def test_what_was_only_just_missed_is_not_due_yet() -> None:
    events: list[Event] = []
    async with running(recorder=events.append) as site:
        await send(site, 0, 2, features=ORDERED)
    assert broken(judged(events)) == []


@pytest.mark.asyncio
async def test_nothing_false_is_found_where_a_part_is_not_seen() -> None:
    events: list[Event] = []
    async with running(recorder=events.append) as site:
        for number in (2, 0, 0, 1, 2, 4, 3, 3, 5, 6, 8, 7, 9):
            await send(site, number)
        await send(site, 10, last="true")
    for seed in range(40):
        assert broken_between_gaps(wsr_rules(), events, seed) == [], f"seed {seed}"


@pytest.mark.asyncio
async def test_an_envelope_that_is_no_xml_is_named_and_a_stranger_s_bytes_are_not() -> None:
    events: list[Event] = []
    async with running(recorder=events.append) as site:
        await site.post(b"GET me out of here")
        await site.post(b"<s:Envelope xmlns:s='urn:other'>")
        assert broken(judged(events)) == []
        await site.post(b"<w:Request xmlns:w='%b'>" % WSR.encode())
    assert broken(judged(events)) == ["well-formed"]
