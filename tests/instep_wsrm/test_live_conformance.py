"""Sources are judged while a receiver works: each duty that is broken is named, at a bound cost."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from instep.conformance import Event
from instep.runtime.conformance import LiveConformance
from instep_sql import SqlStore
from instep_wsrm.conformance import wsrm_rules
from tests.instep.conformance.live_kit import broken_between_gaps, endless, spent
from tests.instep_wsrm.rm_kit import running, until
from tests.instep_wsrm.test_conformance import VARIANTS, Source


@pytest.mark.asyncio
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda one: one.__name__.strip("_"))
async def test_a_duty_that_is_broken_is_found_counted_and_stored(
    variant: Callable[[Source], Awaitable[None]],
) -> None:
    async with running(budget=endless()) as site:
        await variant(await Source(site).begin())
        wanted = {f"wsrm-{duty}" for duty in VARIANTS[variant]}

        async def found() -> bool:
            health = site.receiver.health()
            assert health.intake is not None
            assert health.conformance is not None
            broken = {one.rule for one in health.conformance.broken}
            return broken == wanted and wanted <= health.intake.deviations.keys()

        await until(found)


@pytest.mark.asyncio
async def test_what_came_last_is_in_the_report_of_who_has_ended(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/rm.db"
    async with running(url, budget=endless()) as site:
        source = await Source(site).begin()
        await source.send(1)
        await source.send(1, body="other")
    async with SqlStore(url) as store:
        (report,) = (await store.reader.conformance()).values()
    assert [one.rule for one in report.broken] == ["wsrm-content-repeated"]


@pytest.mark.asyncio
async def test_what_there_is_no_time_for_takes_the_shorter_way_and_is_not_judged() -> None:
    async with running(budget=spent()) as site:
        source = await Source(site).begin()
        await source.send(1, 2, 3)
        assert isinstance(site.conformance, LiveConformance)
        report = site.conformance.report()
    assert (report.messages, report.connections) == (0, 0)
    # The request that made the sequence, and its messages; a POST may be asked for twice.
    assert report.messages_skipped >= 4


@pytest.mark.asyncio
async def test_nothing_false_is_found_between_gaps() -> None:
    """A conforming source of which parts are not seen: what was answered before a gap proves
    nothing behind it.
    """
    events: list[Event] = []
    async with running(recorder=events.append) as site:
        rng = random.Random(49)
        for _ in range(6):
            source = await Source(site).begin()
            numbers = [number for number in range(1, 12) for _ in range(rng.choice((1, 1, 2)))]
            rng.shuffle(numbers)
            await source.send(*numbers)
            await source.end("CloseSequence", 11)
            await source.end("TerminateSequence", 11)
    for seed in range(40):
        assert broken_between_gaps(wsrm_rules(), events, seed) == [], f"seed {seed}"
