"""Rules for WebSockets, each on plain sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from instep.testing.relay import (
    FragmentedMessages,
    Frame,
    GoingAway,
    HeartbeatText,
    ServiceRestart,
    SwallowedMessages,
    SwallowedPings,
    WebSocketRule,
)
from tests.instep.testing.relay.sockets_kit import Pipe, dial, relaying

pytestmark = pytest.mark.asyncio

UPGRADE = b"GET /s HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
SWITCHING = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"


@asynccontextmanager
async def websocket(rule: WebSocketRule, *sent: bytes) -> AsyncIterator[tuple[Pipe, list[bytes]]]:
    """A client whose server has sent these frames, and what the server got."""
    got: list[bytes] = []

    async def serve(pipe: Pipe) -> None:
        await pipe.until(b"\r\n\r\n")
        await pipe.send(SWITCHING)
        for frame in sent:
            await pipe.send(frame)
        while data := await pipe.reader.read(1000):
            got.append(data)
            await pipe.send(text(b"end"))

    async with relaying(serve, rule) as (_, relay), dial(relay.address) as client:
        await client.send(UPGRADE)
        assert await client.until(b"\r\n\r\n") == SWITCHING
        yield client, got


def text(payload: bytes, first: int = 0x81) -> bytes:
    """A short frame of a server: by default a whole text message."""
    return bytes((first, len(payload))) + payload


PING, PONG = text(b"p", 0x89), text(b"p", 0x8A)
MASKED = b"\x81\x82\x01\x02\x03\x04" + bytes((ord("h") ^ 1, ord("i") ^ 2))
END = text(b"end")


async def test_frames_of_all_lengths_pass_as_they_came() -> None:
    frames = [
        b"\x81\x7e\x00\x80" + bytes(128),
        b"\x82\x7f" + (70_000).to_bytes(8, "big") + bytes(70_000),
        b"\x01\x01a",
        b"\xc1\x01z",
        PING,
        b"\x80\x00",
    ]
    rule = WebSocketRule()
    async with websocket(rule, *frames) as (client, got):
        assert await client.read(sum(map(len, frames))) == b"".join(frames)
        await client.send(MASKED)
        assert await client.read(len(END)) == END
        assert got == [MASKED]


async def test_a_heartbeat_follows_a_message_and_stands_in_none() -> None:
    rule = HeartbeatText("beat")
    sent = [text(b"a", 0x01), text(b"b", 0x80), PING, text(b"c")]
    beat = text(b"beat")
    async with websocket(rule, *sent) as (client, _):
        wanted = b"".join([*sent[:2], beat, *sent[2:], beat])
        assert await client.read(len(wanted)) == wanted
    assert rule.played == 2


@pytest.mark.parametrize(("kind", "code"), [(GoingAway, 1001), (ServiceRestart, 1012)])
async def test_it_is_closed_with_a_code(kind: type[GoingAway], code: int) -> None:
    rule = kind(2)
    async with websocket(rule, text(b"a"), text(b"b"), text(b"c")) as (client, got):
        assert await client.read(7) == text(b"a") + b"\x88\x02" + code.to_bytes(2, "big")
        assert await client.silent()
        await client.send(MASKED)  # the client's Close is passed on
        await client.silent()
        assert got == [MASKED]
    assert rule.played == 1


async def test_pings_and_pongs_of_both_sides_are_lost() -> None:
    rule = SwallowedPings()
    async with websocket(rule, PING, text(b"a"), PONG) as (client, got):
        assert await client.read(3) == text(b"a")
        await client.send(b"\x8a\x80\x01\x02\x03\x04" + MASKED)
        assert await client.read(len(END)) == END
        assert got == [MASKED]
    assert rule.played == 3


async def test_messages_are_lost() -> None:
    rule = SwallowedMessages(most=1)
    async with websocket(rule, text(b"a"), text(b"b")) as (client, _):
        assert await client.read(3) == text(b"b")


@pytest.mark.parametrize(
    ("sent", "wanted"),
    [
        (text(b"abcde"), text(b"ab", 0x01) + text(b"cd", 0x00) + text(b"e", 0x80)),
        (text(b"abc", 0xC1), text(b"ab", 0x41) + text(b"c", 0x80)),  # RSV1 once
        (text(b"abc", 0x00), text(b"ab", 0x00) + text(b"c", 0x00)),  # was a fragment itself
        (text(b"ab"), text(b"ab")),
        (text(b"abc", 0x89), text(b"abc", 0x89)),
    ],
)
async def test_messages_come_in_fragments(sent: bytes, wanted: bytes) -> None:
    async with websocket(FragmentedMessages(2), sent) as (client, _):
        assert await client.read(len(wanted)) == wanted


async def test_a_frame_is_encoded_with_its_mask() -> None:
    assert Frame(1, b"hi", mask=b"\x01\x02\x03\x04").encode() == MASKED
