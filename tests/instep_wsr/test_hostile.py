"""A receiver under strangers: what they send costs little, and its senders go on."""

from __future__ import annotations

import pytest

from tests.instep_wsr.wsr_kit import GROUP, UNORDERED, Site, poll, running

pytestmark = pytest.mark.asyncio
MOST = 2**63 - 1


async def works(site: Site) -> None:
    name = f"mid:{id(site)}@honest.example"
    assert (await site.send(0, group=name)).acknowledged == [(0, 0)]


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
        assert answer.replies == [(MOST, MOST, "MessageProcessingFailure")]
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
