"""The relay itself: what passes, what is counted, what is random, and how it ends."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress

import pytest

from instep.testing import relay as room
from instep.testing.relay import RULES, Chunked, Cut, Dial, Jitter, Relay, Rule, Stream
from tests.instep.testing.relay.sockets_kit import Pipe, dial, http_client, relaying

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
POST = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"


async def echo(pipe: Pipe) -> None:
    while data := await pipe.reader.read(1000):
        await pipe.send(data)
    await pipe.send(b"END")


class Upper(Rule):
    """What the client sends comes in capitals."""

    name = "upper"
    reports = ()

    async def from_client(self, data: bytes) -> bytes:
        return data.upper() if self.strikes() else data


class Doubled(Rule):
    """What the client sends comes twice."""

    name = "doubled"
    reports = ()

    async def from_client(self, data: bytes) -> bytes:
        return data * 2


@pytest.mark.asyncio
async def test_without_rules_bytes_and_ends_pass() -> None:
    async with relaying(echo) as (_, relay), dial(relay.address) as client:
        await client.send(b"hello")
        assert await client.read(5) == b"hello"
        client.writer.write_eof()
        assert await client.rest() == b"END"
        assert relay.connections == 1


@pytest.mark.asyncio
async def test_rules_stand_one_behind_the_other_the_first_at_the_client() -> None:
    async with relaying(echo, Doubled(), Upper()) as (_, relay), dial(relay.address) as client:
        await client.send(b"ab")
        assert await client.read(4) == b"ABAB"


@pytest.mark.asyncio
async def test_what_has_struck_is_counted_and_healing_ends_it() -> None:
    rule = Upper()
    async with relaying(echo, rule) as (_, relay), dial(relay.address) as client:
        await client.send(b"a")
        assert await client.read(1) == b"A"
        relay.heal()
        await client.send(b"b")
        assert await client.read(1) == b"b"
    assert rule.played == 1


@pytest.mark.asyncio
async def test_a_rule_may_strike_so_often_only() -> None:
    rule = Upper(most=1)
    async with relaying(echo, rule) as (_, relay), dial(relay.address) as client:
        for sent, came in ((b"a", b"A"), (b"b", b"b")):
            await client.send(sent)
            assert await client.read(1) == came


def test_the_same_seed_strikes_at_the_same_occasions() -> None:
    def strikes(seed: int) -> list[bool]:
        rule = Upper(share=0.5)
        Relay("127.0.0.1:1", [rule], seed=seed)
        return [rule.strikes() for _ in range(50)]

    assert strikes(1) == strikes(1) != strikes(2)
    assert 10 < sum(strikes(1)) < 40


@pytest.mark.asyncio
async def test_a_server_that_is_away_ends_the_connection() -> None:
    async with Relay("127.0.0.1:1") as relay, dial(relay.address) as client:
        assert await client.rest() == b""


@pytest.mark.asyncio
async def test_cut_ends_what_there_is_and_new_connections_are_served() -> None:
    async with relaying(echo) as (_, relay):
        async with dial(relay.address) as client:
            await client.send(b"a")
            await client.read(1)
            await relay.cut()
            assert await client.rest() == b""
        async with dial(relay.address) as client:
            await client.send(b"b")
            assert await client.read(1) == b"b"


@pytest.mark.asyncio
async def test_leaving_the_relay_leaves_no_task() -> None:
    before = asyncio.all_tasks()
    async with relaying(echo, Doubled(), Chunked()) as (_, relay), dial(relay.address) as client:
        await client.send(b"POST / ")
        await asyncio.sleep(0.01)
    async with asyncio.timeout(5):
        while asyncio.all_tasks() != before:
            await asyncio.sleep(0.01)


@pytest.mark.asyncio
async def test_a_rule_may_end_a_connection_by_a_reset() -> None:
    class Refused(Rule):
        """Every connection is reset at once."""

        name = "refused"
        reports = ()

        async def serve(self, client: Stream, dial: Dial) -> None:
            del client, dial
            self.strikes()
            raise Cut(reset=True)

    async with relaying(echo, Refused()) as (_, relay), dial(relay.address) as client:
        with pytest.raises(ConnectionResetError):
            await client.rest()


@pytest.mark.asyncio
async def test_a_mistake_of_a_rule_is_raised_when_the_relay_ends() -> None:
    class Wrong(Rule):
        """It does not work."""

        async def from_client(self, data: bytes) -> bytes:
            raise RuntimeError(f"no rule for {data!r}")

    async def story() -> None:
        async with relaying(echo, Wrong()) as (_, relay), dial(relay.address) as client:
            await client.send(b"a")
            assert await client.rest() == b""

    with pytest.raises(RuntimeError, match="no rule for b'a'"):
        await story()


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "raw",
    [
        b"nothing\r\n\r\n",
        POST.replace(b"3", b"x"),
        POST.replace(b"Content-Length: 3", b"Transfer-Encoding: chunked") + b"xyz\r\n",
        bytes(70_000),
    ],
)
async def test_what_is_no_http_ends_the_connection(raw: bytes) -> None:
    async with http_client(OK, room.HttpRule()) as (client, peer, _):
        await client.send(raw)
        with suppress(ConnectionResetError):
            assert await client.rest() == b""
        assert not peer.requests


@pytest.mark.asyncio
async def test_http_passes_as_it_came() -> None:
    async with http_client(OK, room.HttpRule()) as (client, peer, _):
        for _ in range(2):
            await client.send(POST)
            assert await client.message() == (["HTTP/1.1 200 OK", "Content-Length: 2"], b"hi")
        head = ["POST / HTTP/1.1", "Host: a", "Content-Length: 3"]
        assert peer.requests == [(head, b"abc")] * 2
        assert peer.connections == 1


@pytest.mark.asyncio
async def test_the_client_of_a_rule_for_http_gets_its_100() -> None:
    async with http_client(OK, room.HttpRule()) as (client, peer, _):
        await client.send(POST.replace(b"\r\n\r\nabc", b"\r\nExpect: 100-continue\r\n\r\n"))
        assert await client.until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        await client.send(b"abc")
        assert (await client.message())[1] == b"hi"
        assert peer.requests[0][1] == b"abc"


@pytest.mark.asyncio
async def test_chunks_a_head_only_and_a_body_to_the_end_pass() -> None:
    chunked = (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nhi\r\n0\r\nA: b\r\n\r\n"
    )
    async with http_client(chunked, room.HttpRule()) as (client, _, _):
        await client.send(b"GET / HTTP/1.1\r\n\r\n")
        assert (await client.message())[1] == b"hi"
    empty = b"HTTP/1.1 204 No Content\r\n\r\n"
    async with http_client(empty, room.HttpRule()) as (client, _, _):
        await client.send(b"GET / HTTP/1.1\r\n\r\n")
        assert (await client.message())[0] == ["HTTP/1.1 204 No Content"]

    async def to_the_end(pipe: Pipe) -> None:
        await pipe.message()
        await pipe.send(b"HTTP/1.0 200 OK\r\n\r\nall of it")

    async with relaying(to_the_end, room.HttpRule()) as (_, relay), dial(relay.address) as client:
        await client.send(b"GET / HTTP/1.0\r\n\r\n")
        assert (await client.rest()).endswith(b"\r\n\r\nall of it")


def test_every_rule_says_what_it_plays_where_and_from_which_report() -> None:
    assert len(RULES) >= 25
    assert len({rule.name for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert re.fullmatch(r"[a-z0-9]+([-.][a-z0-9]+)*", rule.name), rule
        assert rule.plays().endswith("."), rule
        assert rule.sides, rule
        assert rule.reports, rule
        assert all(re.fullmatch(r"[\w.-]+/[\w.-]+ #\d+", one) for one in rule.reports), rule
        assert rule.protocol in {"TCP", "HTTP", "WebSocket", "PostgreSQL"}


def test_every_rule_of_the_room_is_in_the_list() -> None:
    bases = {"Rule", "HttpRule", "WebSocketRule", "PostgresRule"}
    found = {
        name
        for name in room.__all__
        if isinstance(thing := getattr(room, name), type) and issubclass(thing, Rule)
    }
    assert found - bases == {rule.__name__ for rule in RULES}


def test_a_rule_takes_its_share_and_its_most() -> None:
    rule = Jitter(0.1, share=0.0, most=3)
    assert not rule.strikes()
    assert rule.played == 0
