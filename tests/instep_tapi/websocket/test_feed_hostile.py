"""A stream that means harm cannot hang the source, nor grow its memory."""

from __future__ import annotations

import asyncio
import zlib
from contextlib import AsyncExitStack
from typing import Any

import pytest

from instep.errors import FrameTooBigError, SourceError, UnreachableError
from instep.model.streams import Start
from instep_tapi.source import TapiSource
from instep_tapi.websocket.feed import _AHEAD_BYTES, WebSocketFeed
from instep_tapi.websocket.socket_reads import MAX_READ_BYTES
from tests.instep_tapi.hostile_kit import (
    CONTINUATION,
    DEADLINE_S,
    PING,
    PONG,
    TEXT,
    Peer,
    frame,
    hostile_stream,
    record,
)
from tests.instep_tapi.source_kit import ending, receive

MIB = 1024 * 1024
DEFLATE = "Sec-WebSocket-Extensions: permessage-deflate"


async def end_of(source: TapiSource) -> SourceError:
    """Return the error that the stream ends with."""
    [info] = await source.discover()
    async with source.feed(info, Start.OLDEST) as feed:
        return await ending(feed)


@pytest.mark.asyncio
async def test_a_handshake_that_never_ends_is_given_up() -> None:
    async def serve(peer: Peer) -> None:
        await peer.send(b"HTTP/1.1 101 Switching Protocols\r\n")
        for n in range(100_000):
            await peer.send(b"X-%d: y\r\n" % n)
            await asyncio.sleep(0.02)

    async with hostile_stream(serve, request_timeout_s=0.3) as source:
        [info] = await source.discover()
        with pytest.raises(UnreachableError, match="no answer in time"):
            async with asyncio.timeout(DEADLINE_S), source.feed(info, Start.OLDEST):
                pass


@pytest.mark.asyncio
async def test_a_frame_that_drips_is_a_dead_peer() -> None:
    async def serve(peer: Peer) -> None:
        await peer.upgrade()
        await peer.send(frame(record() * 10)[:4])
        while True:
            await peer.send(b"x")
            await asyncio.sleep(0.02)

    async with hostile_stream(serve, dead_peer_s=0.2) as source:
        error = await end_of(source)
    assert "the peer is dead" in str(error)


@pytest.mark.asyncio
async def test_a5_a_pong_within_a_message_is_a_sign_of_life_and_no_silence() -> None:
    finish = asyncio.Event()
    data = record()

    async def serve(peer: Peer) -> None:
        await peer.upgrade()
        await peer.send(frame(data[:1], fin=False))
        async for opcode, payload in peer.frames_of_client():
            if opcode == PING:
                await peer.send(frame(payload, PONG))
                await peer.send(frame(b" ", CONTINUATION, fin=False))
            if finish.is_set():
                await peer.send(frame(data[1:], CONTINUATION))
                await peer.send(frame(b"", PONG))
                break
        await asyncio.sleep(DEADLINE_S)

    async with hostile_stream(serve, dead_peer_s=0.2) as source:
        [info] = await source.discover()
        async with source.feed(info, Start.OLDEST) as feed, asyncio.timeout(DEADLINE_S):
            opened_s = asyncio.get_running_loop().time()
            # Twice as long as it takes to declare a peer dead that gives no sign of life.
            while (waited_s := asyncio.get_running_loop().time() - opened_s) < 0.8:
                await feed.ping()
                await asyncio.sleep(0.02)
                assert feed.unheard_s > waited_s - 0.2
            finish.set()
            await feed.ping()
            assert len((await feed.receive()).records) == 1
            assert feed.under_way_s > 0.6
            while feed.unheard_s > 0.5:
                await asyncio.sleep(0.01)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("fragment", "ending"),
    [
        (b"x" * 1000, "a frame of more than 200000 bytes"),
        (b"x", "a message in more than 65,536 fragments"),
        (b"", "a message in more than 65,536 fragments"),
    ],
)
async def test_fragments_without_end_end_the_connection(fragment: bytes, ending: str) -> None:
    sent = 0

    async def serve(peer: Peer) -> None:
        nonlocal sent
        await peer.upgrade()
        await peer.send(frame(fragment, TEXT, fin=False))
        many = frame(fragment, CONTINUATION, fin=False) * 100
        while True:
            await peer.send(many)
            sent += len(many)

    async with hostile_stream(serve, max_frame_bytes=200_000) as source:
        error = await end_of(source)
    assert ending in str(error)
    assert sent < 8 * MIB


@pytest.mark.asyncio
async def test_a_frame_that_claims_exabytes_is_refused_at_its_head() -> None:
    async def serve(peer: Peer) -> None:
        await peer.upgrade()
        await peer.send(b"\x81\x7f" + b"\x7f" + b"\xff" * 7)
        await asyncio.sleep(DEADLINE_S)

    async with hostile_stream(serve) as source:
        assert isinstance(await end_of(source), FrameTooBigError)


@pytest.mark.asyncio
async def test_a_decompression_bomb_is_a_frame_too_big() -> None:
    pack = zlib.compressobj(9, zlib.DEFLATED, -15)
    bomb = b"".join(pack.compress(bytes(MIB)) for _ in range(256))
    bomb += pack.flush(zlib.Z_SYNC_FLUSH)
    assert len(bomb) < MIB

    async def serve(peer: Peer) -> None:
        await peer.upgrade(DEFLATE)
        await peer.send(frame(bomb.removesuffix(b"\0\0\xff\xff"), rsv1=True))
        await asyncio.sleep(DEADLINE_S)

    async with hostile_stream(serve) as source:
        assert isinstance(await end_of(source), FrameTooBigError)


@pytest.mark.asyncio
async def test_a_flood_of_pings_is_answered_in_part_then_ended_and_starves_nobody() -> None:
    pongs = 0

    async def serve(peer: Peer) -> None:
        async def count() -> None:
            nonlocal pongs
            async for opcode, _ in peer.frames_of_client():
                pongs += opcode == PONG

        await peer.upgrade()
        counting = asyncio.create_task(count())
        await peer.send(frame(record()) + frame(b"", PING) * 9_000 + frame(record(2)))
        while not pongs:
            await asyncio.sleep(0.01)
        while True:
            await peer.send(frame(b"", PING) * 1_000)
            if counting.done():
                return

    async with hostile_stream(serve) as source:
        [info] = await source.discover()
        async with source.feed(info, Start.OLDEST) as feed:
            assert [one.token for one in await receive(feed, 2)] == ["t1", "t2"]
            error = await ending(feed)
    assert "floods us" in str(error)
    assert 0 < pongs < 9_000


@pytest.mark.asyncio
async def test_each_ping_of_a_usual_peer_is_answered_with_its_payload() -> None:
    answered: list[bytes] = []

    async def serve(peer: Peer) -> None:
        await peer.upgrade()
        answers = peer.frames_of_client()
        for n in range(3):
            await peer.send(frame(b"ping %d" % n, PING))
            opcode, payload = await anext(answers)
            assert opcode == PONG
            answered.append(payload)
        await peer.send(frame(record()))
        await asyncio.sleep(DEADLINE_S)

    async with hostile_stream(serve) as source:
        [info] = await source.discover()
        async with source.feed(info, Start.OLDEST) as feed:
            await receive(feed, 1)
    assert answered == [b"ping 0", b"ping 1", b"ping 2"]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("flood", "options"),
    [
        (frame(b"") * 1_000, {"hold_records": 500}),
        (frame(record()) * 100, {"hold_bytes": 100_000}),
        ((frame(b"", PING) + frame(record())) * 100, {"hold_records": 5, "pong_interval_s": 0.01}),
    ],
)
async def test_a_reader_that_waits_makes_the_provider_wait(
    flood: bytes, options: dict[str, Any]
) -> None:
    """Nothing is received from the feed: what is held is bounded, and so is what was sent."""
    sent = 0
    stuck = asyncio.Event()

    async def serve(peer: Peer) -> None:
        nonlocal sent
        await peer.upgrade()
        peer.writer.transport.set_write_buffer_limits(0)
        while True:
            try:
                async with asyncio.timeout(0.5):
                    await peer.send(flood)
            except TimeoutError:
                stuck.set()
                return
            sent += len(flood)

    async with hostile_stream(serve, **options) as source:
        [info] = await source.discover()
        async with source.feed(info, Start.OLDEST) as feed:
            async with asyncio.timeout(DEADLINE_S):
                await stuck.wait()
            assert "bytes held" in repr(feed)
    assert sent < 32 * MIB  # what kernel buffers on both sides may hold, and our own limits


@pytest.mark.asyncio
@pytest.mark.parametrize("patient", [True, False])
async def test_a_socket_is_read_not_far_ahead_unless_nothing_is_received_for_long(
    monkeypatch: pytest.MonkeyPatch, patient: bool
) -> None:
    monkeypatch.setattr("instep_tapi.websocket.feed._PATIENCE_S", 1e6 if patient else 0.0)
    many = frame(record()) * 100

    async def serve(peer: Peer) -> None:
        await peer.upgrade()
        while True:
            await peer.send(many)

    async with hostile_stream(serve) as source:
        [info] = await source.discover()
        async with source.feed(info, Start.OLDEST) as feed:
            assert isinstance(feed, WebSocketFeed)
            assert feed._transport is not None
            transport = feed._transport.underlying_transport
            for _ in range(3):
                async with asyncio.timeout(DEADLINE_S):
                    while transport.is_reading() if patient else not feed._is_full:
                        await asyncio.sleep(0.001)
                if patient:
                    assert feed._held_bytes < _AHEAD_BYTES + MIB
                before = feed._held_bytes
                chunk = await feed.receive()
                assert feed._held_bytes < before
                assert chunk.decoded().records  # bodies are needed: this is no storm


@pytest.mark.asyncio
async def test_all_streams_together_buffer_no_more_than_a_total() -> None:
    many = frame(record()) * 100

    async def serve(peer: Peer) -> None:
        await peer.upgrade()
        while True:
            await peer.send(many)

    async with hostile_stream(serve, hold_total_bytes=300_000) as source, AsyncExitStack() as stack:
        [info] = await source.discover()
        feeds = [
            await stack.enter_async_context(source.feed(info, Start.OLDEST)) for _ in range(10)
        ]
        async with asyncio.timeout(DEADLINE_S):
            while source._held.messages_bytes < 300_000:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        # Beyond it, each stream holds what one read of its socket brings.
        assert source._held.messages_bytes < 300_000 + len(feeds) * MAX_READ_BYTES
        # One that is read goes on, though the others stand still and hold all there is.
        received = 0
        async with asyncio.timeout(DEADLINE_S):
            while received < 3_000_000:
                received += (await feeds[0].receive()).size_bytes
    assert (source._held.messages_bytes, source._held.unfinished_bytes) == (0, 0)


@pytest.mark.asyncio
async def test_unfinished_messages_of_all_streams_are_bounded_together() -> None:
    async def serve(peer: Peer) -> None:
        await peer.upgrade()
        await peer.send(frame(b"x" * 60_000, TEXT, fin=False))
        await peer.reader.read()

    limits = {"max_frame_bytes": 80_000, "hold_total_bytes": 100_000}
    async with hostile_stream(serve, **limits) as source:
        [info] = await source.discover()
        async with source.feed(info, Start.OLDEST):
            async with asyncio.timeout(DEADLINE_S):
                while source._held.unfinished_bytes < 60_000:
                    await asyncio.sleep(0.01)
            error = await end_of(source)
        assert "unfinished messages of all streams are over 100,000 bytes" in str(error)
        assert error.retriable
        assert source._held.unfinished_bytes == 0


@pytest.mark.asyncio
async def test_headers_cannot_be_injected_through_a_token() -> None:
    targets: list[str] = []
    heads: list[dict[str, str]] = []

    async def serve(peer: Peer) -> None:
        targets.append(peer.target)
        heads.append(peer.headers)
        await peer.upgrade()
        await asyncio.sleep(DEADLINE_S)

    async with hostile_stream(serve) as source:
        [info] = await source.discover()
        async with source.feed(info, "t HTTP/1.1\r\nX-Injected: 1\r\n\r\n&start_from=latest"):
            pass
    assert targets == [
        "/stream?start_from=t%20HTTP%2F1.1%0D%0AX-Injected%3A%201%0D%0A%0D%0A%26start_from%3Dlatest"
    ]
    assert "X-Injected" not in heads[0]
