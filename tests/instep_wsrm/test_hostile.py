"""A destination under strangers: what they send costs little, and its sources go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from tests.instep_wsrm.rm_kit import (
    RM_11,
    Site,
    about,
    envelope,
    message,
    ranges,
    running,
    sequence,
)

pytestmark = pytest.mark.asyncio
MIB = 1024 * 1024


def resident_bytes() -> int:
    path = Path("/proc/self/statm")
    if not path.exists():
        pytest.skip("the memory of a process is read from /proc")
    return int(path.read_text().split()[1]) * 4096


async def flood(size_mib: int) -> AsyncIterator[bytes]:
    yield b"<s:Envelope xmlns:s='http://www.w3.org/2003/05/soap-envelope'><s:Body>"
    for _ in range(size_mib):
        yield b"x" * MIB


async def status_of(site: Site, data: object) -> int:
    """The status of the response; 0: the connection was closed."""
    async with aiohttp.ClientSession() as session:
        try:
            async with session.post(site.url, data=data) as answer:
                return answer.status
        except aiohttp.ClientError:
            return 0


async def works(site: Site) -> None:
    name = await site.create()
    assert (await site.say(sequence(name, 1), message(1))).ranges() == [(1, 1)]


async def test_bodies_of_100_mib_are_not_kept() -> None:
    async with running() as site:
        await works(site)
        before = resident_bytes()
        found = await asyncio.gather(*(status_of(site, flood(100)) for _ in range(4)))
        assert set(found) <= {0, 413}
        assert resident_bytes() - before < 100 * MIB
        await works(site)


async def test_names_that_never_come_again_are_not_kept() -> None:
    async with running(max_elements=10_000) as site:
        await works(site)

        async def say(part: int) -> None:
            names = "".join(f"<n{part}_{one}_{'x' * 80}/>" for one in range(5_000))
            assert (await site.say(body=f"<a>{names}</a>")).fault == "WSRMRequired"

        for part in range(30):
            await say(part)
        before = resident_bytes()
        for part in range(30, 90):
            await say(part)
        # These are 27 MB of names.
        assert resident_bytes() - before < 20 * MIB
        await works(site)


async def test_names_in_an_acknowledgement_that_is_refused_are_not_kept() -> None:
    async with running(max_elements=10_000) as site:
        wrong = ranges((2, 1), local="AcknowledgementRange")

        async def say(part: int) -> None:
            names = "".join(f"<n{part}_{one}_{'x' * 80}/>" for one in range(5_000))
            answer = await site.say(about("SequenceAcknowledgement", "urn:a", wrong + names))
            assert answer.fault == "InvalidAcknowledgement"
            assert len(answer.all("AcknowledgementRange")) == 1

        for part in range(30):
            await say(part)
        before = resident_bytes()
        for part in range(30, 90):
            await say(part)
        # These are 27 MB of names.
        assert resident_bytes() - before < 20 * MIB
        await works(site)


async def test_strangers_do_not_fill_a_sequence_they_do_not_know() -> None:
    async with running() as site:
        name = await site.create()
        for number in range(1, 30):
            guess = name[:-1] + ("0" if name[-1] != "0" else "1")
            assert (await site.say(sequence(guess, number), message(number))).fault
        assert await site.numbers() == []
        await works(site)


@pytest.mark.parametrize("local", ["SequenceCancel", "SequenceFill"])
async def test_the_holes_of_a_sequence_are_bounded(local: str) -> None:
    async with running(sequence={"limit_gaps": 100}) as site:
        name = await site.create()
        holes = ranges(*((2 * one, 2 * one) for one in range(1, 1_000)))
        answer = await site.post(envelope(about(local, name, holes), rm=RM_11))
        assert answer.status == 400
        await site.say(sequence(name, 1), message(1))
        assert await site.numbers(name) == [1]
        assert (await site.say(about("SequenceCancel", name, ranges((3, 4))))).cancelled == [(3, 4)]


async def test_a_range_of_all_numbers_costs_no_more_than_one() -> None:
    async with running() as site:
        name = await site.create()
        everything = ranges((1, 2**63 - 1))
        answer = await site.say(about("SequenceCancel", name, everything))
        assert answer.cancelled == [(1, 2**63 - 1)]
        late = await site.say(sequence(name, 1), message(1))
        assert (late.ranges(), late.cancelled) == ([], [(1, 2**63 - 1)])
        assert await site.numbers(name) == []
