"""Rules for bytes, each on plain sockets."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from instep.testing.relay import (
    ConnectionLimit,
    CutEvery,
    HalfOpen,
    IdleTimeout,
    Jitter,
    OneByte,
    Reset,
    SlowAccept,
    SwallowedBytes,
)
from tests.instep.testing.relay.sockets_kit import JumpingClock, Pipe, dial, relaying

pytestmark = pytest.mark.asyncio


async def echo(pipe: Pipe) -> None:
    while data := await pipe.reader.read(1000):
        await pipe.send(data)


async def both_ways(client: Pipe, data: bytes = b"a") -> None:
    await client.send(data)
    assert await client.read(len(data)) == data


async def test_cut_every_closes_after_its_time_and_not_before() -> None:
    clock, rule = JumpingClock(), CutEvery(30.0)
    async with relaying(echo, rule, clock=clock) as (_, relay), dial(relay.address) as client:
        await both_ways(client)
        await clock.sleepers()
        clock.advance(29.0)
        await both_ways(client)
        clock.advance(1.0)
        assert await client.rest() == b""
    assert rule.played == 1


async def test_a_cut_by_chance_lets_the_others_live_on() -> None:
    clock, rule = JumpingClock(), CutEvery(30.0, share=0.0)
    async with relaying(echo, rule, clock=clock) as (_, relay), dial(relay.address) as client:
        for _ in range(3):
            await both_ways(client, b"some bytes")
            await clock.sleepers()
            clock.advance(30.0)
        await both_ways(client)


async def test_reset_ends_both_sides_by_an_rst() -> None:
    seen: list[BaseException] = []

    async def serve(pipe: Pipe) -> None:
        try:
            await echo(pipe)
        except OSError as error:
            seen.append(error)

    clock, rule = JumpingClock(), Reset(30.0)
    async with relaying(serve, rule, clock=clock) as (_, relay), dial(relay.address) as client:
        await both_ways(client)
        await clock.sleepers()
        clock.advance(30.0)
        with pytest.raises(ConnectionResetError):
            await client.rest()
        async with asyncio.timeout(5):
            while not seen:
                await asyncio.sleep(0.01)
    assert isinstance(seen[0], ConnectionResetError)


async def test_half_open_is_silent_and_tells_nobody() -> None:
    clock, rule = JumpingClock(), HalfOpen(5.0)
    ended = asyncio.Event()

    async def serve(pipe: Pipe) -> None:
        await echo(pipe)
        ended.set()

    async with relaying(serve, rule, clock=clock) as (_, relay), dial(relay.address) as client:
        await both_ways(client)
        await clock.sleepers()
        clock.advance(5.0)
        await asyncio.sleep(0.01)
        await client.send(b"a")
        assert await client.silent()
        client.writer.write_eof()
        assert await client.silent()
        assert not ended.is_set()
        assert rule.played == 1


async def test_an_idle_connection_is_forgotten_and_a_used_one_is_not() -> None:
    clock, rule = JumpingClock(), IdleTimeout(60.0)
    async with relaying(echo, rule, clock=clock) as (_, relay), dial(relay.address) as client:
        for _ in range(3):
            await both_ways(client)
            await clock.sleepers()
            clock.advance(40.0)
            await asyncio.sleep(0.01)
        await both_ways(client)
        assert rule.played == 0
        await clock.sleepers()
        clock.advance(40.0)
        await clock.sleepers()
        clock.advance(40.0)
        await asyncio.sleep(0.01)
        await client.send(b"a")
        assert await client.silent()
    assert rule.played == 1


async def test_one_byte_a_piece() -> None:
    pieces: list[bytes] = []

    async def serve(pipe: Pipe) -> None:
        while data := await pipe.reader.read(1000):
            pieces.append(data)
            await pipe.send(b"taken")

    clock, rule = JumpingClock(), OneByte(1.0)
    async with relaying(serve, rule, clock=clock) as (_, relay), dial(relay.address) as client:
        await client.send(b"ab")
        await clock.sleepers(2)  # the second byte waits, and the rest of the first answer
        assert (await client.read(1), pieces) == (b"t", [b"a"])
        for _ in range(6):
            clock.advance(1.0)
            await clock.sleepers()
            await asyncio.sleep(0.01)
        assert pieces == [b"a", b"b"]
        assert await client.read(5) == b"akent"
    assert rule.played >= 7


async def test_jitter_delays_and_loses_nothing() -> None:
    clock, rule = JumpingClock(), Jitter(0.5)
    async with relaying(echo, rule, clock=clock) as (_, relay), dial(relay.address) as client:
        await client.send(b"abc")
        assert await client.silent()
        for _ in range(2):
            await clock.sleepers()
            clock.advance(0.5)
        assert await client.read(3) == b"abc"
    assert rule.played == 2


async def test_slow_accept_dials_after_its_time() -> None:
    clock, rule = JumpingClock(), SlowAccept(5.0)
    async with relaying(echo, rule, clock=clock) as (peer, relay), dial(relay.address) as client:
        await client.send(b"abc")
        await clock.sleepers()
        assert peer.connections == 0
        clock.advance(5.0)
        assert await client.read(3) == b"abc"
    assert rule.played == 1


async def test_one_connection_too_many_is_closed() -> None:
    rule = ConnectionLimit(1)
    async with relaying(echo, rule) as (peer, relay):
        async with dial(relay.address) as first:
            await both_ways(first)
            async with dial(relay.address) as second:
                assert await second.rest() == b""
            await both_ways(first)
            assert (rule.played, peer.connections) == (1, 1)
        answer = b""
        async with asyncio.timeout(5):
            while not answer:  # the relay has yet to see that the first has ended
                async with dial(relay.address) as third:
                    await third.send(b"a")
                    with suppress(ConnectionResetError):
                        answer = await third.reader.read(1)


@pytest.mark.parametrize("piece", [1, 3, 100])
async def test_some_bytes_of_the_server_are_lost_once(piece: int) -> None:
    sent = bytes(range(50))

    async def serve(pipe: Pipe) -> None:
        for at in range(0, len(sent), piece):
            await pipe.send(sent[at : at + piece])
            await asyncio.sleep(0)

    rule = SwallowedBytes(10, 5)
    async with relaying(serve, rule) as (_, relay), dial(relay.address) as client:
        assert await client.rest() == sent[:10] + sent[15:]
    assert rule.played == 1
