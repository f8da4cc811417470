"""Peers that mean harm: what they state ends neither the receiver nor its good end."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from instep.model.messages import Message
from instep.ports.listener import Receipt
from instep_didcomm import new_identity
from tests.instep_didcomm.link_kit import faulty_link
from tests.instep_didcomm.listener_kit import MemoryIntake, plain, post, serving, until
from tests.instep_http.test_urls import BAD

SCOPE = "lot-7 did:ex:alice"


@pytest.mark.asyncio
@pytest.mark.parametrize("endpoint", [*BAD, "http://127.0.0.1:9/", "http://[::ffff:127.0.0.1]:9/"])
async def test_an_endpoint_that_nothing_can_be_sent_to_ends_nothing(endpoint: str) -> None:
    hostile, _ = new_identity(endpoint)
    async with faulty_link() as link:
        peers = [{"did": "did:ex:alice", "endpoint": link.url}]
        async with serving(did="did:ex:us", peers=peers, ack_delay_s=0.01) as (listener, intake):
            message = plain(1, **{"from": hostile, "please_ack": [""]})
            assert (await post(listener.address, message))[0] == 202
            # Who asks afterwards is answered: what goes on beside the receiving goes on.
            assert (await post(listener.address, plain(1, please_ack=[""])))[0] == 202
            await until(lambda: bool(link.messages))
            assert intake.numbers(SCOPE) == [1]


@pytest.mark.asyncio
async def test_what_is_being_taken_has_ended_when_serving_has() -> None:
    taking = asyncio.Event()

    class Stuck(MemoryIntake):
        async def receive(self, message: Message, settings: Any = None) -> Receipt:
            taking.set()
            await asyncio.Event().wait()
            return await super().receive(message, settings)

    reported = plain(1, received_orders=[{"id": "did:ex:us", "last": 1, "gaps": []}])
    async with AsyncExitStack() as stack:
        async with serving(Stuck()) as (listener, _):
            answer = asyncio.create_task(post(listener.address, reported))
            stack.callback(answer.cancel)
            await taking.wait()
            assert listener._tasks
        assert not listener._tasks
        await asyncio.wait([answer])
        assert answer.exception()
