"""Two and more parties over real HTTP: numbers, gaps seen from both sides, resending, proof."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from instep.errors import SourceError
from instep.sequencing.effects import AskResend, ReportFault
from instep.sequencing.outbox import OutboxFullError
from instep.sequencing.settings import SequencerSettings
from instep.sequencing.transitions import Refusal
from instep_didcomm import new_identity
from instep_didcomm.sending.sender import PROBLEM_REPORT
from instep_didcomm.wire.headers import EMPTY_MESSAGE_TYPE
from tests.instep_didcomm.link_kit import FaultyLink, faulty_link
from tests.instep_didcomm.listener_kit import (
    BID,
    MemoryIntake,
    keys_file,
    plain,
    post,
    serving,
    until,
)

ALICE, BOB, CAROL = "did:ex:alice", "did:ex:bob", "did:ex:carol"
QUICK = {"resend_after_s": 0.1}


@pytest.mark.asyncio
async def test_the_example_of_the_specification() -> None:
    """The auctioneer saw bids 1 and 2 from Bob, and 1 and 4 from Alice; both are told."""
    async with faulty_link() as alice, faulty_link() as bob:
        peers = [{"did": ALICE, "endpoint": alice.url}, {"did": BOB, "endpoint": bob.url}]
        async with serving(did=CAROL, peers=peers) as (auctioneer, intake):
            for order in (1, 2):
                await post(auctioneer.address, plain(order, **{"from": BOB}))
            for order in (1, 4):
                await post(auctioneer.address, plain(order, **{"from": ALICE}))
            assert intake.numbers(f"lot-7 {ALICE}") == [1]
            sender = await auctioneer.sender()
            await sender.conversation([ALICE, BOB], thid="lot-7").send(BID, {"status": "open"})
            for peer in (alice, bob):
                (said,) = peer.messages
                assert sorted(said["received_orders"], key=lambda one: one["last"]) == [
                    {"id": BOB, "last": 2, "gaps": []},
                    {"id": ALICE, "last": 4, "gaps": [2, 3]},
                ]
                assert (said["from"], said["thid"], said["sender_order"]) == (CAROL, "lot-7", 1)
                assert "sent_count" not in said


@pytest.mark.asyncio
async def test_what_a_peer_reports_missing_is_sent_again_with_sent_count() -> None:
    async with faulty_link() as bob:
        options: dict[str, Any] = {"did": ALICE, "peers": [{"did": BOB, "endpoint": bob.url}]}
        # The timer of the outbox is far away: only the report has anything sent again.
        outbox, clock = {"resend_after_s": 1_000}, [1_800_000_000.0]
        async with serving(now=lambda: clock[0], **options, outbox=outbox) as (alice, intake):
            sender = await alice.sender()
            talk = sender.conversation([BOB])
            for amount in range(1, 5):
                assert (await talk.send(BID, {"amount": amount})).number == amount
            first = bob.messages[:4]
            report = plain(None, **{"from": BOB}, thid=talk.thid, type=EMPTY_MESSAGE_TYPE)
            report["received_orders"] = [{"id": ALICE, "last": 4, "gaps": [2, 3]}]
            bob.messages.clear()
            assert (await post(alice.address, report))[0] == 202
            assert bob.messages == []  # they may still be on their way
            clock[0] += 1_000
            assert (await post(alice.address, report))[0] == 202
            await until(lambda: len(bob.messages) == 2)
            again, other = sorted(bob.messages, key=lambda one: int(one["sender_order"]))
            assert (again["sender_order"], other["sender_order"]) == (2, 3)
            assert again["sent_count"] == 2
            lasting = ("id", "body", "thid", "type", "from", "to", "created_time", "sender_order")
            assert [again[name] for name in lasting] == [first[1][name] for name in lasting]
            report["received_orders"] = [{"id": ALICE, "last": 4, "gaps": []}]
            await post(alice.address, report)
            assert await intake.outbox.outboxes() == []
            assert intake.outbox.kept == {}


@pytest.mark.asyncio
async def test_a_report_that_cannot_be_is_told_and_changes_nothing() -> None:
    async with faulty_link() as bob:
        options: dict[str, Any] = {"did": ALICE, "peers": [{"did": BOB, "endpoint": bob.url}]}
        async with serving(**options) as (alice, intake):
            talk = (await alice.sender()).conversation([BOB])
            await talk.send(BID, {})
            report = plain(None, **{"from": BOB}, thid=talk.thid, type=EMPTY_MESSAGE_TYPE)
            report["received_orders"] = [{"id": ALICE, "last": 7, "gaps": []}]
            assert (await post(alice.address, report))[0] == 202
            assert intake.deviations == {"received-orders-wrong": 1}
            assert len(await intake.outbox.outboxes()) == 1
            # Of threads that are not ours, and of others, nothing is concluded.
            report["thid"] = "another"
            assert (await post(alice.address, report))[0] == 202
            report["received_orders"] = [{"id": CAROL, "last": 7, "gaps": []}]
            assert (await post(alice.address, report))[0] == 202


@pytest.mark.asyncio
async def test_who_asks_is_told_what_was_received() -> None:
    async with faulty_link() as alice:
        options: dict[str, Any] = {"did": BOB, "peers": [{"did": ALICE, "endpoint": alice.url}]}
        async with serving(**options, ack_delay_s=0.05) as (bob, _):
            for order in (1, 3):
                await post(bob.address, plain(order, please_ack=[""]))
            await until(lambda: bool(alice.messages))
            (said,) = alice.messages
            assert said["type"] == EMPTY_MESSAGE_TYPE
            assert said["received_orders"] == [{"id": ALICE, "last": 3, "gaps": [2]}]
            assert said["thid"] == "lot-7"
            assert "sender_order" not in said


@pytest.mark.asyncio
async def test_what_a_sequence_wants_is_sent_to_the_peer() -> None:
    async with faulty_link() as alice:
        options: dict[str, Any] = {"did": BOB, "peers": [{"did": ALICE, "endpoint": alice.url}]}
        async with serving(**options) as (bob, _):
            await post(bob.address, plain(2))
            await bob.carry_out(f"lot-7 {ALICE}", AskResend([(1, 1)]))
            assert alice.messages.pop()["received_orders"] == [
                {"id": ALICE, "last": 2, "gaps": [1]}
            ]
            await bob.carry_out(f"lot-7 {ALICE}", ReportFault([(2, 2)], Refusal.EXPIRED))
            report = alice.messages.pop()
            assert (report["type"], report["pthid"]) == (PROBLEM_REPORT, "lot-7")
            assert report["body"]["code"] == "e.m.req.time"
            with pytest.raises(SourceError, match="give its document — peers = "):
                await bob.carry_out(f"lot-7 {CAROL}", AskResend([(1, 1)]))


@pytest.mark.asyncio
async def test_a_receiver_without_a_name_receives_and_says_that_it_cannot_ask() -> None:
    async with serving() as (listener, intake):
        await post(listener.address, plain(2, please_ack=[""]))
        with pytest.raises(SourceError, match="without a DID"):
            await listener.carry_out(f"lot-7 {ALICE}", AskResend([(1, 1)]))
        with pytest.raises(SourceError, match="without a DID"):
            await listener.sender()
        await post(listener.address, plain(1))
        assert intake.numbers(f"lot-7 {ALICE}") == [1, 2]


@pytest.mark.asyncio
async def test_an_expired_message_of_a_sequence_is_refused_and_the_next_one_goes_on() -> None:
    async with serving() as (listener, intake):
        past = int(time.time()) - 10
        status, problem, _ = await post(listener.address, plain(1, expires_time=past))
        assert (status, problem["title"]) == (410, "expired")
        assert (await post(listener.address, plain(2)))[0] == 202
        assert intake.numbers(f"lot-7 {ALICE}") == [2]


@pytest.mark.asyncio
async def test_unsequenced_protocols_pass_through_once_by_id() -> None:
    async with serving() as (listener, intake):
        chat = {"id": "c1", "type": "https://example.org/chat/1.0/say", "body": {}}
        for message in (chat, chat, {**chat, "from": ALICE}, {**chat, "from": BOB}):
            assert (await post(listener.address, message))[0] == 202
        assert [message.sender for message in intake.delivered] == ["", ALICE, BOB]
        assert intake.receipts == {"accepted": 3, "duplicate": 1}


@contextlib.asynccontextmanager
async def pair(
    folder: Path, **options: Any
) -> AsyncIterator[tuple[Any, Any, Any, Any, FaultyLink]]:
    """Alice and Bob with keys; what Alice sends to Bob goes over a wire that can be faulty."""
    (alice_did, alice_keys), (bob_did, bob_keys) = new_identity(), new_identity()
    async with faulty_link() as link:
        at_alice: dict[str, Any] = {
            "secrets_file": keys_file(folder, "alice", alice_keys),
            "peers": [{"did": bob_did, "endpoint": link.url}],
            "outbox": QUICK,
        }
        async with serving(**at_alice, **options) as (alice, at_a):
            at_bob: dict[str, Any] = {
                "secrets_file": keys_file(folder, "bob", bob_keys),
                "peers": [{"did": alice_did, "endpoint": alice.address}],
                "ack_delay_s": 0.02,
            }
            intake = MemoryIntake(SequencerSettings())
            async with serving(intake, **at_bob) as (bob, at_b):
                link.onward = bob.address
                yield alice, at_a, bob, at_b, link


@pytest.mark.asyncio
async def test_over_a_faulty_link_everything_arrives_in_order_and_is_acknowledged(
    tmp_path: Path,
) -> None:
    async with pair(tmp_path) as (alice, at_alice, bob, at_bob, link):
        link.loses = {3, 4, 9, 17}
        talk = (await alice.sender()).conversation([bob.did])
        for amount in range(1, 21):
            await talk.send(BID, {"amount": amount})
        scope = f"{talk.thid} {alice.did}"
        await until(lambda: at_bob.numbers(scope) == list(range(1, 21)))
        await until(lambda: not at_alice.outbox.kept)
        assert all(json.loads(one.attributes)["authenticated"] for one in at_bob.delivered)
        assert at_bob.deviations == {}
        assert b"amount" not in b"".join(link.raw)


@pytest.mark.asyncio
async def test_after_a_restart_what_was_not_acknowledged_is_sent_again(tmp_path: Path) -> None:
    did, keys = new_identity()
    async with faulty_link() as bob:
        options: dict[str, Any] = {
            "secrets_file": keys_file(tmp_path, "alice", keys),
            "packing": "plain",
            "peers": [{"did": BOB, "endpoint": bob.url}],
            "outbox": QUICK,
        }
        async with serving(**options) as (alice, intake):
            bob.loses = set(range(1, 1_000))
            talk = (await alice.sender()).conversation([BOB])
            await talk.send(BID, {"amount": 1})
        bob.loses = set()
        async with serving(intake, **options) as (alice, _):
            await until(lambda: bool(bob.messages))
            assert bob.messages[0]["sender_order"] == 1
            assert bob.messages[0]["sent_count"] > 1
            again = await (await alice.sender()).conversation([BOB], talk.thid).send(BID, {})
            assert again.number == 2
        assert did == bob.messages[0]["from"]


@pytest.mark.asyncio
async def test_a_number_is_not_used_where_storing_failed_or_was_cancelled() -> None:
    async with faulty_link() as bob:
        options: dict[str, Any] = {"did": ALICE, "peers": [{"did": BOB, "endpoint": bob.url}]}
        async with serving(**options) as (alice, intake):
            talk = (await alice.sender()).conversation([BOB])
            intake.outbox.fails = 1
            with pytest.raises(OSError, match="disk"):
                await talk.send(BID, {"try": 1})
            cancelled = asyncio.create_task(talk.send(BID, {"try": 2}))
            await asyncio.sleep(0)
            cancelled.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await cancelled
            sent = await talk.send(BID, {"try": 3})
            kept = {number: json.loads(body) for (_, number), body in intake.outbox.kept.items()}
            assert kept[sent.number]["body"] == {"try": 3}
            assert len({body["id"] for body in kept.values()}) == len(kept)


@pytest.mark.asyncio
async def test_what_is_never_acknowledged_is_given_up_and_what_is_full_is_refused() -> None:
    async with faulty_link() as bob:
        options: dict[str, Any] = {"did": ALICE, "peers": [{"did": BOB, "endpoint": bob.url}]}
        outbox = {"resend_after_s": 0.02, "limit_sent_count": 2, "limit_messages": 2}
        async with serving(**options, outbox=outbox) as (alice, _):
            sender = await alice.sender()
            talk = sender.conversation([BOB])
            await asyncio.gather(talk.send(BID, {}), talk.send(BID, {}))
            with contextlib.suppress(OutboxFullError):
                await talk.send(BID, {})
            await until(lambda: sender.given_up >= 2)
            counts = [one.get("sent_count", 1) for one in bob.messages if one["sender_order"] == 1]
            assert counts == [1, 2]


@pytest.mark.asyncio
async def test_a_claimed_sender_is_refused_where_proof_is_required(tmp_path: Path) -> None:
    _, keys = new_identity()
    secrets: dict[str, Any] = {"secrets_file": keys_file(tmp_path, "us", keys)}
    async with serving(**secrets) as (listener, intake):
        status, problem, _ = await post(listener.address, plain())
        assert (status, problem["title"]) == (403, "unauthenticated")
        anonymous = {"id": "1", "type": "https://example.org/a", "body": {}}
        assert (await post(listener.address, anonymous))[0] == 202
        assert len(intake.delivered) == 1
    async with serving(**secrets, require_authenticated=False) as (listener, _):
        assert (await post(listener.address, plain()))[0] == 202
