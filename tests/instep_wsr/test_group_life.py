"""The life of a group: its last message, its times, and how long it is remembered."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from instep_wsr.receiver import WsrReceiver
from tests.instep_wsr.wsr_kit import (
    GROUP,
    UNORDERED,
    Clock,
    Site,
    poll,
    running,
    until,
)

pytestmark = pytest.mark.asyncio
HOUR_S = 3600.0


async def forgotten(site: Site, group: str = GROUP) -> bool:
    receiver = site.listener._receiver
    assert isinstance(receiver, WsrReceiver)
    return await receiver._intake.state(group) is None


async def test_an_unordered_group_is_delivered_as_it_comes_each_message_once() -> None:
    async with running() as site:
        for number in (2, 0, 2, 1, 0):
            answer = await site.send(number, features=UNORDERED)
            assert number in range(answer.acknowledged[0][0], answer.acknowledged[0][1] + 1)
        assert await site.numbers() == [2, 0, 1]


async def test_a_group_ends_with_its_last_message_and_still_takes_what_is_missing() -> None:
    async with running() as site:
        await site.send(2, last="true")
        await site.send(0)
        assert (await site.send(1)).replies == [(0, 2, "")]
        assert (await site.send(2, last="true")).replies == [(0, 2, "")], "a copy of the last"
        assert (await site.send(3)).replies == [(3, 3, "InvalidMessageParameters")]
        assert await site.numbers() == [0, 1, 2]


@pytest.mark.parametrize("acknowledge", ["receipt", "delivery"])
async def test_group_expiry_faults_what_is_kept_and_takes_nothing_more(acknowledge: str) -> None:
    clock = Clock()
    expiry = f'groupExpiryTime="{clock.at(HOUR_S)}"'
    async with running(clock=clock, acknowledge=acknowledge) as site:
        await site.send(0, more=expiry)
        await site.send(2, more=expiry, expires=clock.at(2 * HOUR_S))
        clock.ahead_s += HOUR_S + 1

        async def ended() -> bool:
            return bool((await site.say(poll())).faults)

        await until(ended)
        assert (await site.say(poll())).replies == [(0, 0, ""), (2, 2, "GroupAborted")]
        late = await site.send(1, more=expiry, expires=clock.at(HOUR_S))
        assert late.replies == [(2, 2, "GroupAborted"), (1, 1, "GroupAborted")]
        copy = await site.send(0, more=expiry)
        assert copy.acknowledged == [(0, 0)]
        assert await site.numbers() == [0]


async def test_an_idle_group_ends_and_each_message_begins_its_time_again() -> None:
    idle = 'groupMaxIdleDuration="PT1000S"'
    clock = Clock()
    async with running(clock=clock) as site:
        for number in range(3):
            assert (await site.send(number, more=idle)).acknowledged == [(0, number)]
            clock.ahead_s += 900
        await site.send(4, more=idle, expires=clock.at(10 * HOUR_S))
        clock.ahead_s += 1100

        async def ended() -> bool:
            return bool((await site.say(poll())).faults)

        await until(ended)
        answer = await site.send(3, more=idle, expires=clock.at(HOUR_S))
        assert answer.faults == [(4, 4, "GroupAborted"), (3, 3, "GroupAborted")]
        assert await site.numbers() == [0, 1, 2]


@pytest.mark.parametrize("persist", [{}, {"persist_duration_s": 60.0}])
async def test_duplicates_are_remembered_until_the_expiry_of_each_message(
    persist: dict[str, Any], tmp_path: Path
) -> None:
    """Also over a restart, and where the group ended long before."""
    clock, url = Clock(), f"sqlite:///{tmp_path}/wsr.db"
    long, short = clock.at(20 * 24 * HOUR_S), clock.at(HOUR_S)
    async with running(url, clock=clock, sequence={"keep_ended_s": 0.0}, **persist) as site:
        await site.send(0, expires=long)
        await site.send(1, expires=short, last="true")
        clock.ahead_s += 19 * 24 * HOUR_S
    async with running(url, clock=clock, sequence={"keep_ended_s": 0.0}, **persist) as site:
        answer = await site.send(0, expires=long)
        assert answer.replies == [(0, 1, "")], "a copy"
        assert await site.numbers() == [0, 1]
        assert not await forgotten(site)


async def test_a_group_is_forgotten_when_no_copy_may_come_any_more() -> None:
    clock = Clock()
    async with running(clock=clock, sequence={"keep_ended_s": 0.0}) as site:
        expires = clock.at(HOUR_S)
        await site.send(features=UNORDERED, expires=expires)
        assert not await forgotten(site)
        clock.ahead_s += HOUR_S + 1

        async def gone() -> bool:
            return await forgotten(site)

        await until(gone)
        copy = await site.send(features=UNORDERED, expires=expires)
        assert copy.replies == [(-1, -1, "InvalidExpiryTime")]
        assert len(await site.delivered(GROUP)) == 1
        again = await site.send(features=UNORDERED, expires=clock.at(HOUR_S))
        assert again.replies == [(-1, -1, "")], "a new message under a name that is free again"


@pytest.mark.parametrize("fast_path", [True, False])
async def test_a_group_that_was_forgotten_begins_again_with_its_next_message(
    *, fast_path: bool
) -> None:
    clock, sequence = Clock(), {"keep_ended_s": 0.0}
    async with running(
        clock=clock, fast_path=fast_path, sequence=sequence, max_expiry_s=HOUR_S
    ) as site:
        expires = clock.at(HOUR_S)
        assert (await site.send(0, expires=expires)).acknowledged == [(0, 0)]
        assert (await site.send(1, expires=expires, last="true")).acknowledged == [(0, 1)]
        clock.ahead_s += 3 * HOUR_S

        async def gone() -> bool:
            return await forgotten(site)

        await until(gone)
        later = clock.at(HOUR_S)
        answers = await asyncio.gather(*(site.send(n, expires=later) for n in (0, 1, 2)))
        assert [answer.status for answer in answers] == [200] * 3
        assert (await site.send(1, expires=later)).acknowledged == [(0, 2)]
        assert await site.numbers() == [0, 1, 0, 1, 2]
