"""The listener in a `Receiver` over the real SQL store, in one process."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from instep import HandlerConnection, Message, Receiver
from instep.sequencing import SequencePhase
from instep_didcomm import DidcommListener, new_identity, read_options
from instep_didcomm.wire.headers import EMPTY_MESSAGE_TYPE
from instep_sql import SqlStore
from tests.instep_didcomm.link_kit import faulty_link
from tests.instep_didcomm.listener_kit import AUCTION, BID, PLAIN, keys_file, plain, post, until


@asynccontextmanager
async def receiving(
    name: str, store: str, heard: list[Message], **options: Any
) -> AsyncIterator[tuple[DidcommListener, Receiver]]:
    async def hear(message: Message, _: HandlerConnection) -> None:
        heard.append(message)

    table = {"listen": "127.0.0.1:0", "protocols": [AUCTION], **options}
    listener = DidcommListener(read_options(table, name))
    async with Receiver(name, listener, SqlStore(store), handler=hear) as receiver:
        await receiver.aligned(timeout_s=30)
        yield listener, receiver


@pytest.mark.asyncio
async def test_other_content_under_a_number_is_refused_and_the_first_stays() -> None:
    heard: list[Message] = []
    async with receiving("x", "sqlite://", heard) as (listener, receiver):
        first, other = plain(1), plain(1, body={"amount": 999})
        for message in (first, {**first, "sent_count": 2}):
            assert (await post(listener.address, message))[0] == 202
        status, told, _ = await post(listener.address, other)
        assert (status, told["title"]) == (409, "content-changed")
        assert (await post(listener.address, plain(2)))[0] == 202
        await until(lambda: len(heard) == 2)
        assert [json.loads(message.body)["body"]["amount"] for message in heard] == [100, 200]
        health = receiver.health().intake
        assert health
        assert (health.accepted, health.duplicates) == (2, 2)
        assert health.deviations == {"content-changed": 1}


REFRESHED: dict[str, dict[str, object]] = {
    "created_time": {"created_time": 1_800_000_001},
    "expires_time": {"expires_time": 4_000_000_000},
    "return_route": {"return_route": "all"},
    "typ": {"typ": PLAIN},
    "lang": {"lang": "en"},
    "to": {"to": ["did:ex:bob"]},
    "type": {"type": f"{BID}-again"},
    "unknown": {"x-trace": "7f2c"},
}
"""Headers that a resend may have made anew; the specification wants them unchanged."""


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("refreshed", "number", "handled"),
    [
        *[(name, 1, True) for name in REFRESHED],
        ("created_time", 1, False),
        ("created_time", 2, False),
        ("created_time", 12, False),
        ("created_time", 12, True),
    ],
)
async def test_a_resend_with_another_header_is_a_copy(
    refreshed: str, number: int, handled: bool
) -> None:
    """Advanced Sequencing: "Once a recipient has received one copy of a message, they MUST ignore
    subsequent copies". Number 2 waits for 1; of 12, the digest is in the store alone.
    """
    heard: list[Message] = []

    async def hear(message: Message, _: HandlerConnection) -> None:
        heard.append(message)

    listener = DidcommListener(read_options({"listen": "127.0.0.1:0", "protocols": [AUCTION]}, "x"))
    store, handler = SqlStore("sqlite://"), hear if handled else None
    async with Receiver("x", listener, store, handler=handler) as receiver:
        await receiver.aligned(timeout_s=30)
        later = range(2, 3) if number == 2 else range(1, 21) if number == 12 else range(1, 2)
        for order in later:
            assert (await post(listener.address, plain(order)))[0] == 202
        if handled and number == 12:
            await until(lambda: len(heard) == len(later))
        again = plain(number, sent_count=2, **REFRESHED[refreshed])
        assert (await post(listener.address, again))[0] == 202
        health = receiver.health().intake
        assert health
        assert (health.accepted, health.duplicates) == (len(later), 1)
        # What the handler took is known by its content alone.
        told = {} if handled and number == 12 else {"headers-changed": 1}
        assert health.deviations == told
        # The same header under another body, or another id, is no copy.
        for other in ({"body": {"amount": 1}}, {"id": "another"}, {"attachments": [{"id": "a"}]}):
            status, problem, _ = await post(listener.address, {**again, **other})
            assert (status, problem["title"]) == (409, "content-changed")


@pytest.mark.asyncio
@pytest.mark.parametrize("handled", [True, False])
async def test_a_sender_that_numbers_anew_is_told_that_nothing_is_kept(handled: bool) -> None:
    """A dozen of twenty, long after: none is answered 202 unless it is the message that came."""
    heard: list[Message] = []
    listener = DidcommListener(read_options({"listen": "127.0.0.1:0", "protocols": [AUCTION]}, "x"))

    async def hear(message: Message, _: HandlerConnection) -> None:
        heard.append(message)

    store = SqlStore("sqlite://")
    handler = hear if handled else None
    async with Receiver("x", listener, store, handler=handler) as receiver:
        await receiver.aligned(timeout_s=30)
        for order in range(1, 21):
            assert (await post(listener.address, plain(order)))[0] == 202
        if handled:
            await until(lambda: len(heard) == 20)
        for order in range(1, 13):
            anew = plain(order, id=f"other-{order}", body={"amount": order})
            assert (await post(listener.address, anew))[0] == 409
            assert (await post(listener.address, plain(order)))[0] == 202
        health = receiver.health().intake
        assert health
        assert (health.delivered, health.deviations) == (20, {"content-changed": 12})


@pytest.mark.asyncio
async def test_all_messages_of_a_thread_count_whatever_their_type() -> None:
    """Advanced Sequencing: sender_order numbers the messages that the sender sent in the thread."""
    chat = "https://didcomm.org/basicmessage/2.0/message"
    heard: list[Message] = []
    async with receiving("x", "sqlite://", heard) as (listener, receiver):
        for message in (
            plain(2, type=chat),
            plain(1),
            plain(4, type=EMPTY_MESSAGE_TYPE, body={}),
            plain(3),
            plain(6, type=EMPTY_MESSAGE_TYPE, body={}),
            plain(7),
            plain(5, type=chat),
        ):
            assert (await post(listener.address, message))[0] == 202
        await until(lambda: len(heard) == 5)
        assert [message.number for message in heard if message.number > 0] == [1, 3, 7]
        assert [message.id for message in heard if message.number < 0] == ["bid-2", "bid-5"]
        assert receiver.intake
        state = await receiver.intake.state("lot-7 did:ex:alice")
        assert state is not None
        assert state.next_number == 8
        # An empty message is no way around the bound on jumps.
        far = plain(2**62, type=EMPTY_MESSAGE_TYPE, body={})
        assert (await post(listener.address, far))[0] == 400
        assert (await post(listener.address, plain(8)))[0] == 202


@pytest.mark.asyncio
async def test_a_protocol_that_is_not_sequenced_asks_for_nothing() -> None:
    chat = "https://didcomm.org/basicmessage/2.0/message"
    heard: list[Message] = []
    options: dict[str, Any] = {"did": "did:ex:bob", "sequence": {"gap_deadline_s": 0.01}}
    async with receiving("x", "sqlite://", heard, **options) as (listener, receiver):
        for order in (1, 5, 9):
            assert (await post(listener.address, plain(order, type=chat)))[0] == 202
        await until(lambda: len(heard) == 3)
        await asyncio.sleep(0.1)
        assert receiver.intake
        state = await receiver.intake.state("lot-7 did:ex:alice")
        assert state is not None
        assert (state.phase, state.asked_to) == (SequencePhase.OPEN, [])


@pytest.mark.asyncio
async def test_each_protocol_has_its_own_policies(tmp_path: Path) -> None:
    stock = {
        "type": "https://example.org/stock/1.0/*",
        "sequence": {"gap_policy": "skip", "gap_deadline_s": 0.05, "gap_repeat_s": 0.05},
    }
    options: dict[str, Any] = {"protocols": [AUCTION, stock], "sequence": {"gap_policy": "wait"}}
    heard: list[Message] = []
    store = f"sqlite:///{tmp_path}/x.db"
    quote = "https://example.org/stock/1.0/quote"
    async with receiving("x", store, heard, **options) as (listener, receiver):
        # The thread was opened by a message of no protocol: the first of the protocol decides.
        empty = plain(1, thid="t", type=EMPTY_MESSAGE_TYPE, body={})
        assert (await post(listener.address, empty))[0] == 202
        assert (await post(listener.address, plain(3, thid="t", type=quote)))[0] == 202
        assert (await post(listener.address, plain(2)))[0] == 202
        await until(lambda: [message.number for message in heard] == [3])
        await until(lambda: delivered(receiver) == 1)
    async with receiving("x", store, heard, **options) as (listener, receiver):
        assert (await post(listener.address, plain(5, thid="t", type=quote)))[0] == 202
        await until(lambda: [message.number for message in heard] == [3, 5])
        assert receiver.intake
        bid = await receiver.intake.state("lot-7 did:ex:alice")
        assert bid is not None
        assert (bid.next_number, bid.phase) == (1, SequencePhase.OPEN)


@pytest.mark.asyncio
async def test_the_parties_of_a_thread_are_known_after_a_restart(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/x.db"
    async with faulty_link() as link:
        peers = [{"did": "did:ex:alice", "endpoint": link.url}]
        options: dict[str, Any] = {"did": "did:ex:us", "peers": peers}
        async with receiving("x", store, [], **options) as (listener, _):
            for did in ("did:ex:alice", "did:ex:bob"):
                assert (await post(listener.address, plain(1, **{"from": did})))[0] == 202
            other = plain(1, thid="lot-77", **{"from": "did:ex:eve"})
            assert (await post(listener.address, other))[0] == 202
        async with receiving("x", store, [], **options) as (listener, _):
            sender = await listener.sender()
            await sender.conversation(["did:ex:alice"], thid="lot-7").send(BID, {})
            (told,) = link.messages
            assert told["received_orders"] == [
                {"id": "did:ex:alice", "last": 1, "gaps": []},
                {"id": "did:ex:bob", "last": 1, "gaps": []},
            ]


@pytest.mark.asyncio
async def test_two_parties_with_keys_and_stores_through_restarts(tmp_path: Path) -> None:
    (alice_did, alice_keys), (bob_did, bob_keys) = new_identity(), new_identity()
    heard: list[Message] = []
    async with faulty_link() as link:
        at_alice: dict[str, Any] = {
            "secrets_file": keys_file(tmp_path, "alice", alice_keys),
            "peers": [{"did": bob_did, "endpoint": link.url}],
            "outbox": {"resend_after_s": 0.1},
        }
        stores = {name: f"sqlite:///{tmp_path}/{name}.db" for name in ("alice", "bob")}
        async with receiving("alice", stores["alice"], [], **at_alice) as (alice, _):
            link.loses = set(range(1, 10_000))
            talk = (await alice.sender()).conversation([bob_did], thid="lot-7")
            for amount in range(1, 4):
                await talk.send(BID, {"amount": amount})
        link.loses = set()
        async with receiving("alice", stores["alice"], [], **at_alice) as (alice, at_work):
            at_bob: dict[str, Any] = {
                "secrets_file": keys_file(tmp_path, "bob", bob_keys),
                "peers": [{"did": alice_did, "endpoint": alice.address}],
                "ack_delay_s": 0.05,
            }
            talk = (await alice.sender()).conversation([bob_did], thid="lot-7")
            for amount in (4, 5):
                assert (await talk.send(BID, {"amount": amount})).number == amount
                async with receiving("bob", stores["bob"], heard, **at_bob) as (bob, _):
                    link.onward = bob.address
                    await acknowledged(at_work)
                    async with asyncio.timeout(30):
                        while len(heard) < amount:
                            await asyncio.sleep(0.02)
    assert [json.loads(message.body)["body"]["amount"] for message in heard] == [1, 2, 3, 4, 5]
    assert [message.number for message in heard] == [1, 2, 3, 4, 5]


@pytest.mark.asyncio
async def test_peers_that_never_answer_hold_up_no_honest_one() -> None:
    """Thirty of them, each with gaps, and each asking what we have: an honest one is asked."""
    tarpits = [f"did:ex:eve{n}" for n in range(30)]
    stuck: set[asyncio.StreamWriter] = set()

    async def never_answers(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        stuck.add(writer)

    server = await asyncio.start_server(never_answers, "127.0.0.1", 0)
    nowhere = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/didcomm"
    async with server, faulty_link() as link:
        peers = [{"did": did, "endpoint": nowhere} for did in tarpits]
        options: dict[str, Any] = {
            "did": "did:ex:bob",
            "peers": [*peers, {"did": "did:ex:alice", "endpoint": link.url}],
            "ack_delay_s": 0.01,
            "sequence": {"gap_deadline_s": 0.05, "gap_repeat_s": 0.1, "gap_attempts": 3},
        }
        heard: list[Message] = []
        async with receiving("x", "sqlite://", heard, **options) as (listener, receiver):
            for did in tarpits:
                for thid in ("t1", "t2", "t3"):
                    bid = plain(2, thid=thid, please_ack=[""], **{"from": did})
                    assert (await post(listener.address, bid))[0] == 202
            await until(lambda: len(stuck) >= len(tarpits))
            assert (await post(listener.address, plain(3)))[0] == 202
            await until(lambda: bool(link.messages))
            assert link.messages[0]["received_orders"] == [
                {"id": "did:ex:alice", "last": 3, "gaps": [1, 2]}
            ]
            for order in (1, 2):
                assert (await post(listener.address, plain(order)))[0] == 202
            await until(lambda: [message.number for message in heard] == [1, 2, 3])
            # Nor has a gap's time passed for those that could not be asked yet.
            assert receiver.intake
            for did in tarpits:
                state = await receiver.intake.state(f"t1 {did}")
                assert state is not None
                assert state.phase is SequencePhase.OPEN
        for writer in stuck:
            writer.close()


@pytest.mark.asyncio
async def test_who_is_left_out_of_a_thread_for_a_message_misses_nothing(tmp_path: Path) -> None:
    """Bids to b and c, one to c alone, one to both; then d joins. All get what is theirs."""
    did, keys = {}, {}
    for name in "abcd":
        did[name], raw = new_identity()
        keys[name] = keys_file(tmp_path, name, raw)
    heard: dict[str, list[Message]] = {name: [] for name in "bcd"}
    async with contextlib.AsyncExitStack() as stack:
        links = {name: await stack.enter_async_context(faulty_link()) for name in "bcd"}
        peers = [{"did": did[name], "endpoint": links[name].url} for name in "bcd"]
        a, at_a = await stack.enter_async_context(
            receiving(
                "a",
                f"sqlite:///{tmp_path}/a.db",
                [],
                secrets_file=keys["a"],
                peers=peers,
                outbox={"resend_after_s": 0.1},
            )
        )
        for name in "bcd":
            listener, _ = await stack.enter_async_context(
                receiving(
                    name,
                    f"sqlite:///{tmp_path}/{name}.db",
                    heard[name],
                    secrets_file=keys[name],
                    peers=[{"did": did["a"], "endpoint": a.address}],
                    ack_delay_s=0.01,
                    sequence={"gap_deadline_s": 0.1, "gap_repeat_s": 0.2, "gap_attempts": 50},
                )
            )
            links[name].onward = listener.address
        sender = await a.sender()
        for to in ("bc", "c", "bc", "bcd"):
            recipients = [did[name] for name in to]
            await sender.conversation(recipients, thid="lot-7").send(BID, {})
        numbers = {"b": [1, 3, 4], "c": [1, 2, 3, 4], "d": [4]}
        await until(
            lambda: {n: [one.number for one in heard[n]] for n in heard} == numbers, timeout_s=30
        )
        await acknowledged(at_a)


def delivered(receiver: Receiver) -> int:
    """How many messages were delivered for good: what a handler took may be undone before."""
    intake = receiver.health().intake
    return intake.delivered if intake else 0


async def acknowledged(receiver: Receiver) -> None:
    """Wait until nothing is kept for sending again."""
    assert receiver.intake
    async with asyncio.timeout(30):
        while await receiver.intake.outbox.outboxes():
            await asyncio.sleep(0.02)
