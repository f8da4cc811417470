"""HTTP and WebSocket: what is answered, and that nobody can hold the receiver up."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import WSCloseCode, WSMsgType

from instep.errors import SourceError
from instep.model.messages import Message
from instep.ports.listener import Receipt
from instep_didcomm import DidcommListener, read_options
from tests.instep_didcomm.listener_kit import (
    MemoryIntake,
    plain,
    post,
    serving,
    until,
)

SCOPE = "lot-7 did:ex:alice"


@pytest.mark.asyncio
async def test_a_message_is_answered_with_202_and_nothing_else() -> None:
    async with serving() as (listener, intake):
        status, problem, headers = await post(listener.address, plain())
        assert (status, problem, headers["Content-Length"]) == (202, {}, "0")
        assert intake.numbers(SCOPE) == [1]
        status, _, _ = await post(listener.address, plain(sent_count=2))
        assert status == 202
        assert intake.receipts == {"accepted": 1, "duplicate": 1}
        assert intake.numbers(SCOPE) == [1]


@pytest.mark.asyncio
async def test_the_answer_waits_until_the_message_is_durable() -> None:
    durable = asyncio.Event()

    class Slow(MemoryIntake):
        async def receive(self, message: Message, settings: Any = None) -> Receipt:
            receipt = await super().receive(message, settings)
            await durable.wait()
            return receipt

    async with serving(Slow()) as (listener, intake):
        answer = asyncio.create_task(post(listener.address, plain()))
        await until(lambda: bool(intake.receipts))
        await asyncio.sleep(0.05)
        assert not answer.done()
        durable.set()
        assert (await answer)[0] == 202


@pytest.mark.asyncio
async def test_what_is_wrong_is_answered_with_the_reason() -> None:
    async with serving(max_body_bytes=2_000) as (listener, intake):
        url = listener.address
        for body, content_type, status, code in (
            (b"{", "application/didcomm-plain+json", 400, "unreadable"),
            (b"<a/>", "text/xml", 415, "media-type"),
            (b"x" * 2_001, "application/didcomm-plain+json", 413, "too-big"),
            (json.dumps(plain(0)).encode(), "", 400, "unreadable"),
            (json.dumps(plain(sender_order=None)).encode(), "", 400, "no-order"),
            (json.dumps(plain(**{"from": None})).encode(), "", 400, "no-sender"),
            (json.dumps(plain(expires_time=1)).encode(), "", 410, "expired"),
        ):
            answered, problem, headers = await post(url, body, content_type)
            assert (answered, problem["title"]) == (status, code), problem
            assert headers["Content-Type"].startswith("application/problem+json")
            assert problem["detail"]
        assert intake.delivered == []


@pytest.mark.asyncio
async def test_a_message_too_old_to_be_known_again_is_refused() -> None:
    """An unsequenced one is known by its id alone, and ids are not remembered for ever."""
    now_s = int(time.time())
    async with serving(max_age_s=60) as (listener, intake):
        url = listener.address
        for created, status in ((now_s - 1, 202), (now_s - 3_600, 410), (None, 410)):
            message = plain(None, id=f"at-{created}", created_time=created, type="https://x/1.0/y")
            answered, problem, _ = await post(url, json.dumps(message).encode())
            assert answered == status, problem
        # A sequence remembers its numbers.
        old = plain(created_time=now_s - 3_600)
        assert (await post(url, json.dumps(old).encode()))[0] == 202
        assert len(intake.delivered) == 2


@pytest.mark.asyncio
async def test_a_body_that_hides_its_length_is_bounded() -> None:
    async with serving(max_body_bytes=2_000) as (listener, _):

        async def chunks() -> AsyncIterator[bytes]:
            for _ in range(50):
                yield b"x" * 1_000

        async with (
            aiohttp.ClientSession() as session,
            session.post(listener.address, data=chunks()) as response,
        ):
            assert response.status == 413
        bomb = gzip.compress(b" " * 10_000_000)
        status, problem, _ = await post(listener.address, bomb, **{"Content-Encoding": "gzip"})
        assert (status, problem["title"]) == (413, "too-big")
        small = gzip.compress(json.dumps(plain()).encode())
        status, _, _ = await post(listener.address, small, **{"Content-Encoding": "gzip"})
        assert status == 202


@pytest.mark.asyncio
async def test_a_full_receiver_says_when_to_come_again() -> None:
    async with serving() as (listener, intake):
        intake.full = True
        status, problem, headers = await post(listener.address, plain())
        assert (status, problem["title"], headers["Retry-After"]) == (503, "full", "1")
        intake.full = False
        assert (await post(listener.address, plain()))[0] == 202


@pytest.mark.asyncio
async def test_other_paths_and_methods() -> None:
    async with serving() as (listener, _), aiohttp.ClientSession() as session:
        assert (await post(f"{listener.address}/other", plain()))[0] == 404
        async with session.get(listener.address) as response:
            assert (response.status, response.headers["Allow"]) == (405, "POST")


@pytest.mark.asyncio
async def test_a_media_type_of_another_form_is_told_and_taken() -> None:
    async with serving() as (listener, intake):
        status, _, _ = await post(listener.address, plain(), "application/didcomm-signed+json")
        assert status == 202
        assert intake.deviations == {"media-type": 1}


@pytest.mark.asyncio
async def test_websocket_takes_one_message_a_transmission_and_says_nothing() -> None:
    async with serving() as (listener, intake), aiohttp.ClientSession() as session:
        async with session.ws_connect(listener.address) as socket:
            await socket.send_str(json.dumps(plain(2)))
            await socket.send_str("no message")
            await socket.send_bytes(json.dumps(plain(1)).encode())
            await until(lambda: intake.numbers(SCOPE) == [1, 2])
            with pytest.raises(TimeoutError):
                await socket.receive(timeout=0.05)
        assert listener.refused == {"unreadable": 1}


@pytest.mark.asyncio
async def test_websocket_ends_when_the_receiver_is_full_or_the_message_too_big() -> None:
    async with (
        serving(max_body_bytes=2_000) as (listener, intake),
        aiohttp.ClientSession() as session,
    ):
        intake.full = True
        async with session.ws_connect(listener.address) as socket:
            await socket.send_str(json.dumps(plain(1)))
            ended = await socket.receive(timeout=5)
            assert (ended.type, ended.data) == (WSMsgType.CLOSE, WSCloseCode.TRY_AGAIN_LATER)
        async with session.ws_connect(listener.address) as socket:
            await socket.send_str("x" * 3_000)
            ended = await socket.receive(timeout=5)
            assert (ended.type, ended.data) == (WSMsgType.CLOSE, WSCloseCode.MESSAGE_TOO_BIG)


@pytest.mark.asyncio
async def test_an_address_in_use_is_an_error_that_says_so() -> None:
    async with serving() as (listener, _):
        other = DidcommListener(read_options({"listen": listener.address}, "test"))
        with pytest.raises(SourceError, match="cannot listen"):
            await other.serve(MemoryIntake())
