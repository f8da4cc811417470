"""Response, Callback and Poll: where acknowledgements and faults go."""

from __future__ import annotations

import pytest

from tests.instep_wsr.wsr_kit import (
    ELIMINATE,
    GROUP,
    S11,
    S12,
    UNORDERED,
    CallbackServer,
    body,
    poll,
    request,
    running,
    until,
)

pytestmark = pytest.mark.asyncio
OTHER = "mid:other@sender.example"


@pytest.mark.parametrize("soap", [S11, S12])
async def test_response_is_in_the_http_response(soap: str) -> None:
    async with running() as site:
        answer = await site.say(request(0), body(0), soap=soap)
        assert (answer.status, answer.groups, answer.replies) == (200, [GROUP], [(0, 0, "")])
        assert answer.root is not None
        assert answer.root.tag == f"{{{soap}}}Envelope"
        assert [one.get(f"{{{soap}}}mustUnderstand") for one in answer.all("Response")] == ["1"]
        assert len(answer.all("Body")[0]) == 0


async def test_one_message_without_a_number_is_acknowledged_by_its_group() -> None:
    async with running() as site:
        for _ in range(2):
            answer = await site.send(features=UNORDERED)
            assert (answer.groups, answer.replies) == ([GROUP], [(-1, -1, "")])
        assert await site.numbers() == [0]
        assert [one.id for one in await site.delivered()] == [GROUP]


async def test_without_ack_requested_nothing_is_acknowledged() -> None:
    async with running() as site:
        for features in ("", ELIMINATE):
            group = f"mid:{len(features)}@a"
            answer = await site.send(0, group=group, features=features)
            assert (answer.status, answer.raw) == (202, b"")
            assert await site.numbers(group) == [0]


async def test_callback_goes_to_the_address_and_not_into_the_response() -> None:
    async with (
        CallbackServer().running() as sender,
        running(allow_endpoints=[sender.origin]) as site,
    ):

        async def told() -> bool:
            return bool(sender.got)

        stated = {"pattern": "Callback", "reply_to": sender.url}
        answer = await site.send(0, **stated)
        assert (answer.status, answer.raw) == (202, b"")
        await until(told)
        assert (sender.got[0].groups, sender.got[0].replies) == ([GROUP], [(0, 0, "")])
        sender.got.clear()
        answer = await site.send(1, **stated, expires="2001-01-01T00:00:00Z")
        assert (answer.status, answer.raw) == (202, b"")
        await until(told)
        assert sender.got[0].replies == [(1, 1, "InvalidExpiryTime")]


async def test_a_callback_that_fails_is_made_good_by_the_next_copy() -> None:
    async with (
        CallbackServer().running() as sender,
        running(allow_endpoints=[sender.origin]) as site,
    ):
        sender.failing = True
        await site.send(0, pattern="Callback", reply_to=sender.url)
        sender.failing = False

        async def told() -> bool:
            await site.send(0, pattern="Callback", reply_to=sender.url)
            return bool(sender.got)

        await until(told)
        assert sender.got[0].replies == [(0, 0, "")]
        assert await site.numbers() == [0]


async def test_poll_tells_what_became_of_messages() -> None:
    async with running() as site:
        for number in (0, 1, 2, 4):
            answer = await site.send(number, pattern="Poll")
            assert (answer.status, answer.raw) == (202, b"")
        assert (await site.say(poll())).replies == [(0, 2, ""), (4, 4, "")]
        assert (await site.say(poll((1, 9)))).replies == [(1, 2, ""), (4, 4, "")]
        assert (await site.say(poll((0, 0), (2, 2)))).replies == [(0, 0, ""), (2, 2, "")]
        for unknown in (poll((5, 9)), poll(group=OTHER)):
            answer = await site.say(unknown)
            assert (answer.status, answer.raw) == (202, b"")


async def test_a_poll_asks_for_several_groups_and_opens_none() -> None:
    async with running() as site:
        await site.send(0, pattern="Poll")
        await site.send(group=OTHER, pattern="Poll", features=UNORDERED)
        both = poll().replace(
            "</w:PollRequest>",
            f'<w:RefToMessageIds groupId="{OTHER}"/><w:RefToMessageIds groupId="mid:none@a"/>'
            "</w:PollRequest>",
        )
        answer = await site.say(both)
        assert sorted(answer.groups) == sorted([GROUP, OTHER])
        assert answer.replies == [(0, 0, ""), (-1, -1, "")]
        assert (await site.say(poll(group="mid:none@a"))).status == 202


async def test_the_reply_to_a_poll_may_go_to_an_address() -> None:
    async with (
        CallbackServer().running() as sender,
        running(allow_endpoints=[sender.origin]) as site,
    ):
        await site.send(0, pattern="Poll")
        answer = await site.say(poll(reply_to=sender.url))
        assert (answer.status, answer.raw) == (202, b"")

        async def told() -> bool:
            return bool(sender.got)

        await until(told)
        assert sender.got[0].replies == [(0, 0, "")]


async def test_a_poll_may_travel_with_a_message() -> None:
    async with running() as site:
        await site.send(0, group=OTHER, pattern="Poll")
        answer = await site.say(request(0) + poll(group=OTHER), body(0))
        assert (answer.groups, answer.replies) == ([GROUP, OTHER], [(0, 0, ""), (0, 0, "")])
