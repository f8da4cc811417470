"""Peers that are away: nobody waits for them, nothing is counted, and they get everything later.
What they may have received is counted.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

import pytest

from instep_didcomm import DidcommListener
from tests.instep_didcomm.link_kit import FaultyLink, faulty_link
from tests.instep_didcomm.listener_kit import BID, MemoryIntake, serving, until

ALICE, BOB, CAROL = "did:ex:alice", "did:ex:bob", "did:ex:carol"


def sending_to(
    bob: FaultyLink, carol: FaultyLink, send_attempts: int = 1
) -> AbstractAsyncContextManager[tuple[DidcommListener, MemoryIntake]]:
    """Alice, who soon sends again, and not often."""
    return serving(
        did=ALICE,
        peers=[{"did": BOB, "endpoint": bob.url}, {"did": CAROL, "endpoint": carol.url}],
        send_attempts=send_attempts,
        outbox={"resend_after_s": 0.02, "limit_sent_count": 3},
    )


@pytest.mark.asyncio
async def test_a_peer_that_is_away_for_long_still_gets_everything_and_nobody_waits_for_it() -> None:
    async with (
        faulty_link() as bob,
        faulty_link() as carol,
        sending_to(bob, carol) as (alice, intake),
    ):
        bob.away = True
        sender = await alice.sender()
        to_bob, to_carol = sender.conversation([BOB]), sender.conversation([CAROL])
        for amount in range(3):
            await to_bob.send(BID, {"amount": amount})
        await until(lambda: bob.count >= 6)
        assert sender.given_up == 0
        await to_carol.send(BID, {})
        await until(lambda: len(carol.messages) == 3)  # it answers, and never acknowledges
        await until(lambda: sender.given_up == 1)
        assert {number for _, number in intake.outbox.kept} == {1, 2, 3}
        bob.away = False
        await until(lambda: {one["sender_order"] for one in bob.messages} == {1, 2, 3})


@pytest.mark.asyncio
async def test_one_of_two_recipients_is_away_and_gets_everything_later() -> None:
    async with (
        faulty_link() as bob,
        faulty_link() as carol,
        sending_to(bob, carol) as (alice, intake),
    ):
        carol.away = True
        sender = await alice.sender()
        talk = sender.conversation([BOB, CAROL])
        for amount in range(3):
            await talk.send(BID, {"amount": amount})
        # Bob answers, never acknowledges, and is given up; that is nothing to Carol.
        await until(lambda: sender.given_up == 3)
        counts = [one.get("sent_count", 1) for one in bob.messages if one["sender_order"] == 1]
        assert counts == [1, 2, 3]
        await until(lambda: carol.count >= 6)
        assert carol.messages == []
        assert {number for _, number in intake.outbox.kept} == {1, 2, 3}
        carol.away = False
        await until(lambda: {one["sender_order"] for one in carol.messages} == {1, 2, 3})
        assert len(bob.messages) == 9
        # Her first is the first that she was sent, and so on: the counts are her own.
        counts = [one.get("sent_count", 1) for one in carol.messages if one["sender_order"] == 1]
        assert counts == list(range(1, len(counts) + 1))


@pytest.mark.asyncio
async def test_what_may_have_been_received_is_sent_with_a_higher_count_each_time() -> None:
    """Advanced Sequencing: sent_count is 2 with the second delivery, and counts on."""
    async with (
        faulty_link() as bob,
        faulty_link() as carol,
        sending_to(bob, carol, send_attempts=3) as (alice, intake),
    ):
        bob.loses = {1, 2}
        sender = await alice.sender()
        await sender.conversation([BOB]).send(BID, {})
        await until(lambda: bool(bob.messages))
        assert bob.count == 3
        assert bob.messages[0]["sent_count"] == 3
        # A peer that reads and never answers does not get it for ever.
        bob.loses = set(range(1, 1_000))
        await sender.conversation([BOB], thid="t").send(BID, {})
        await until(lambda: sender.given_up == 2)
        assert intake.outbox.kept == {}
