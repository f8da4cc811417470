"""A receiver under strangers: what they send costs little, and its senders go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from tests.instep_wsr.wsr_kit import (
    GROUP,
    UNORDERED,
    WSR,
    Site,
    body,
    envelope,
    poll,
    request,
    running,
)

pytestmark = pytest.mark.asyncio
MIB = 1024 * 1024
BOMB = b"<!DOCTYPE a [<!ENTITY a 'ha'>%b]><a>&z;</a>" % b"".join(
    b"<!ENTITY %c '%b'>" % (name, b"&%c;" % (name - 1) * 10) for name in range(ord("b"), ord("z"))
)
MOST = 2**63 - 1


async def works(site: Site) -> None:
    name = f"mid:{id(site)}@honest.example"
    assert (await site.send(0, group=name)).acknowledged == [(0, 0)]


@pytest.mark.parametrize(
    ("raw", "fault"),
    [
        (BOMB, "Client"),
        (BOMB + envelope(request(0), body(0)), "Client"),
        (envelope(request(0), "<a>" * 200 + "</a>" * 200), "Client"),
        (envelope(request(0), f"<a>{'<b/>' * 1_000}</a>"), "Client"),
        (envelope(request(0) + "<x/>" * 10_000, body(0)), "Client"),
        (envelope(request(0) * 2, body(0)), "InvalidRequest"),
        (envelope(request(0), body(0)).replace(WSR.encode(), b"urn:other"), "MustUnderstand"),
        (envelope(request(0), body(0), soap="urn:other"), "VersionMismatch"),
        (envelope(request(0), body(0))[:-9], "Client"),
        (b"\xff" * 1_000, "Client"),
    ],
    ids=[
        *("bomb", "bomb before an envelope", "deep", "wide", "10,000 headers", "two requests"),
        *("other protocol", "other SOAP", "cut", "binary"),
    ],
)
async def test_a_hostile_envelope_is_a_fault_and_nothing_is_lost(raw: bytes, fault: str) -> None:
    async with running(max_elements=1_000) as site:
        await site.send(0)
        assert (await site.post(raw)).soap_fault == fault
        assert (await site.send(1)).acknowledged == [(0, 1)]
        assert await site.numbers() == [0, 1]


async def test_bodies_of_100_mib_are_not_kept() -> None:
    async with running() as site:
        await works(site)
        before = resident_bytes()
        found = await asyncio.gather(*(status_of(site, flood(100)) for _ in range(4)))
        assert set(found) <= {0, 413}
        assert resident_bytes() - before < 100 * MIB
        await works(site)


async def flood(size_mib: int) -> AsyncIterator[bytes]:
    yield envelope(request(0), body(0))[:-30]
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


def resident_bytes() -> int:
    path = Path("/proc/self/statm")
    if not path.exists():
        pytest.skip("the memory of a process is read from /proc")
    return int(path.read_text().split()[1]) * 4096


async def test_a_range_of_all_numbers_costs_no_more_than_one() -> None:
    async with running() as site:
        await site.send(0)
        answer = await site.say(poll(*[(0, MOST)] * 500))
        assert answer.replies == [(0, 0, "")]
        await works(site)


async def test_a_poll_of_too_many_groups_is_refused() -> None:
    async with running() as site:
        part = f'<w:RefToMessageIds groupId="{GROUP}"/>'
        many = poll().replace("</w:PollRequest>", f"{part * 1_000}</w:PollRequest>")
        answer = await site.say(many)
        assert answer.soap_fault == "InvalidPollRequest"
        await works(site)


async def test_the_highest_number_is_refused_and_opens_no_gap() -> None:
    async with running() as site:
        answer = await site.send(MOST, features=UNORDERED)
        assert answer.replies == [(MOST, MOST, "InvalidMessageParameters")]
        assert (await site.send(0, features=UNORDERED)).acknowledged == [(0, 0)]


async def test_the_holes_of_a_group_are_bounded() -> None:
    async with running(sequence={"limit_gaps": 10}) as site:
        answers = [await site.send(number, features=UNORDERED) for number in range(0, 30, 2)]
        assert answers[0].acknowledged == [(0, 0)]
        assert answers[-1].faults == [(28, 28, "GroupAborted")]
        await works(site)


async def test_groups_of_one_domain_are_bounded_and_others_go_on() -> None:
    async with running(intake={"limit_sequences_per_sender": 3}) as site:
        for number in range(5):
            answer = await site.send(0, group=f"mid:{number}@flood.example")
            assert answer.replies == [(0, 0, "" if number < 3 else "MessageProcessingFailure")]
        await works(site)


async def test_what_waits_of_one_domain_is_bounded_and_others_go_on() -> None:
    async with running(intake={"limit_buffered_messages_per_sender": 5}) as site:
        for number in range(1, 8):
            answer = await site.send(number, group="mid:1@flood.example")
            assert bool(answer.faults) == (number > 5)
        await works(site)
