"""The listener in a `Receiver` over the real SQL store, in one process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from instep import HandlerConnection, Message, Receiver
from instep_didcomm import DidcommListener, new_identity, read_options
from instep_sql import SqlStore
from tests.instep_didcomm.link_kit import faulty_link
from tests.instep_didcomm.listener_kit import AUCTION, BID, keys_file, plain, post, until


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
async def test_other_content_under_a_number_is_counted_and_the_first_stays() -> None:
    heard: list[Message] = []
    async with receiving("x", "sqlite://", heard) as (listener, receiver):
        first, other = plain(1), plain(1, body={"amount": 999})
        for message in (first, {**first, "sent_count": 2}, other):
            assert (await post(listener.address, message))[0] == 202
        assert (await post(listener.address, plain(2)))[0] == 202
        await until(lambda: len(heard) == 2)
        assert [json.loads(message.body)["body"]["amount"] for message in heard] == [100, 200]
        told = receiver.health().intake
        assert told
        assert (told.accepted, told.duplicates) == (2, 2)
        assert told.deviations == {"content-changed": 1}


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


async def acknowledged(receiver: Receiver) -> None:
    """Wait until nothing is kept for sending again."""
    assert receiver.intake
    async with asyncio.timeout(30):
        while await receiver.intake.outbox.outboxes():
            await asyncio.sleep(0.02)
