"""Peers that are away: nobody waits for them, nothing is counted, and they get everything later."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

import pytest

from instep_didcomm import DidcommListener
from tests.instep_didcomm.link_kit import FaultyLink, faulty_link
from tests.instep_didcomm.listener_kit import BID, MemoryIntake, serving, until

ALICE, BOB, CAROL = "did:ex:alice", "did:ex:bob", "did:ex:carol"


def sending_to(
    bob: FaultyLink, carol: FaultyLink
) -> AbstractAsyncContextManager[tuple[DidcommListener, MemoryIntake]]:
    """Alice, who soon sends again, and not often."""
    return serving(
        did=ALICE,
        peers=[{"did": BOB, "endpoint": bob.url}, {"did": CAROL, "endpoint": carol.url}],
        send_attempts=1,
        outbox={"resend_after_s": 0.02, "limit_sent_count": 3},
    )


@pytest.mark.asyncio
async def test_a_peer_that_is_away_for_long_still_gets_everything_and_nobody_waits_for_it() -> None:
    async with (
        faulty_link() as bob,
        faulty_link() as carol,
        sending_to(bob, carol) as (alice, intake),
    ):
        bob.loses = set(range(1, 10_000))
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
        bob.loses = set()
        await until(lambda: {one["sender_order"] for one in bob.messages} == {1, 2, 3})


@pytest.mark.asyncio
async def test_one_of_two_recipients_is_away_and_gets_everything_later() -> None:
    async with (
        faulty_link() as bob,
        faulty_link() as carol,
        sending_to(bob, carol) as (alice, intake),
    ):
        carol.loses = set(range(1, 10_000))
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
        carol.loses = set()
        await until(lambda: {one["sender_order"] for one in carol.messages} == {1, 2, 3})
        assert len(bob.messages) == 9
