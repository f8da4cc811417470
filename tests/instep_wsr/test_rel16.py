"""The steps of a receiver of ordered messages, as the resolution of issue Rel16 orders them."""

from __future__ import annotations

import pytest

from tests.instep_wsr.wsr_kit import (
    ACK,
    ELIMINATE,
    ORDER,
    CallbackServer,
    body,
    envelope,
    poll,
    request,
    running,
    until,
)

pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize("features", [ORDER, ACK + ORDER, ELIMINATE + ORDER])
async def test_rel16_step_1_order_needs_acknowledgement_and_elimination(features: str) -> None:
    async with running() as site:
        answer = await site.send(0, features=features)
        assert answer.replies == [(0, 0, "InvalidRequest")]
        assert await site.numbers() == []
        assert (await site.say(poll())).replies == [], "it is not kept, and its group is unknown"


async def test_rel16_step_2_a_duplicate_is_found_whether_delivered_or_waiting() -> None:
    async with running() as site:
        for number in (0, 0, 2, 2):
            await site.send(number)
        assert await site.numbers() == [0]
        await site.send(1)
        assert await site.numbers() == [0, 1, 2]


async def test_rel16_step_3_a_message_is_persisted_for_its_duration(tmp_path: object) -> None:
    url = f"sqlite:///{tmp_path}/wsr.db"
    async with running(url) as site:
        await site.send(1)
    async with running(url) as site:
        assert (await site.send(0)).acknowledged == [(0, 1)]
        first, second = await site.delivered()
        assert b"<index>0</index>" in first.body
        assert b"<index>1</index>" in second.body


async def test_rel16_step_4_by_default_it_is_acknowledged_once_durable_ahead_of_its_turn() -> None:
    async with running() as site:
        early = await site.send(2)
        assert (early.replies, early.status) == ([(2, 2, "")], 200)


@pytest.mark.parametrize("acknowledge", ["receipt", "delivery"])
async def test_rel16_step_4_it_is_acknowledged_whether_duplicated_or_not(acknowledge: str) -> None:
    async with running(acknowledge=acknowledge) as site:
        for _ in range(2):
            assert (await site.send(0)).replies == [(0, 0, "")]
        for _ in range(2):
            early = await site.send(2)
            assert early.replies == ([(2, 2, "")] if acknowledge == "receipt" else [])
            assert early.status == (200 if acknowledge == "receipt" else 202)
        for number in (1, 2):
            assert (await site.send(number)).replies == [(0, 2, "")]


async def test_rel16_step_5_a_duplicate_is_removed_whatever_its_content() -> None:
    async with running() as site:
        await site.send(0)
        answer = await site.post(envelope(request(0), body("other")))
        assert answer.replies == [(0, 0, "")]
        assert len(await site.delivered()) == 1


async def test_rel16_step_6_messages_are_delivered_in_order_within_their_group() -> None:
    async with running() as site:
        for number in (3, 1, 0, 2):
            await site.send(number)
            await site.send(number, group="mid:other@sender.example")
        assert await site.numbers() == [0, 1, 2, 3]
        assert await site.numbers("mid:other@sender.example") == [0, 1, 2, 3]


@pytest.mark.parametrize("acknowledge", ["receipt", "delivery"])
async def test_rel16_what_was_persisted_and_not_delivered_is_reported_by_a_fault_and_removed(
    acknowledge: str,
) -> None:
    """Even though it was acknowledged."""
    async with (
        CallbackServer().running() as sender,
        running(
            acknowledge=acknowledge, persist_duration_s=60.0, allow_endpoints=[sender.origin]
        ) as site,
    ):
        stated = {"pattern": "Callback", "reply_to": sender.url}
        await site.send(0, **stated)
        await site.send(2, **stated)

        async def told(count: int) -> bool:
            return len(sender.got) >= count

        await until(lambda: told(2 if acknowledge == "receipt" else 1))
        sender.got.clear()
        site.clock.ahead_s += 61
        await until(lambda: told(1))
        assert sender.got[0].replies == [(2, 2, "PermanentProcessingFailure")]
        answer = await site.say(poll())
        assert answer.replies == [(0, 0, ""), (2, 2, "PermanentProcessingFailure")]
        assert await site.numbers() == [0]
        late = await site.send(1)
        assert (1, 1, "GroupAborted") in late.faults
        assert await site.numbers() == [0]


async def test_rel16_the_fault_is_sent_until_the_sender_takes_it() -> None:
    async with (
        CallbackServer().running() as sender,
        running(persist_duration_s=60.0, allow_endpoints=[sender.origin]) as site,
    ):
        await site.send(1, pattern="Callback", reply_to=sender.url)
        sender.failing = True
        site.clock.ahead_s += 61

        async def faulted() -> bool:
            return bool((await site.say(poll())).faults)

        await until(faulted)
        sender.failing = False

        async def told() -> bool:
            return bool(sender.got)

        await until(told)
        assert sender.got[0].faults == [(1, 1, "PermanentProcessingFailure")]
