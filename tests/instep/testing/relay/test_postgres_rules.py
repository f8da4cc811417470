"""Rules for PostgreSQL, each on plain sockets and by the bytes of the protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from instep.testing.relay import (
    PgMessage,
    PoolerError,
    PostgresRule,
    QueryWaitTimeout,
    ReadOnlyPrimary,
    SessionsEnded,
    StartingUp,
    TooManyClients,
)
from tests.instep.testing.relay.sockets_kit import Pipe, dial, relaying

pytestmark = pytest.mark.asyncio

START = b"\x00\x00\x00\x11\x00\x03\x00\x00user\x00me\x00\x00"
SSL, GSSENC = b"\x00\x00\x00\x08\x04\xd2\x16\x2f", b"\x00\x00\x00\x08\x04\xd2\x16\x30"
CANCEL = b"\x00\x00\x00\x10\x04\xd2\x16\x2e\x00\x00\x00\x01\x00\x00\x00\x02"
READY = b"Z\x00\x00\x00\x05I"


def query(sql: str) -> bytes:
    raw = sql.encode() + b"\0"
    return b"Q" + (len(raw) + 4).to_bytes(4, "big") + raw


def parse(sql: str, name: str = "s1") -> bytes:
    raw = f"{name}\0{sql}\0".encode() + b"\0\0"
    return b"P" + (len(raw) + 4).to_bytes(4, "big") + raw


class Database:
    """Answers everything with ReadyForQuery, and keeps what it got."""

    def __init__(self) -> None:
        self.got: list[bytes] = []

    async def serve(self, pipe: Pipe) -> None:
        while data := await pipe.reader.read(1000):
            self.got.append(data)
            await pipe.send(READY)


async def errors(client: Pipe) -> list[dict[str, str]]:
    """The ErrorResponses up to the end of the connection."""
    raw, found = await client.rest(), []
    while raw:
        assert raw[:1] == b"E"
        length = int.from_bytes(raw[1:5], "big")
        fields = raw[5 : 1 + length].rstrip(b"\0").split(b"\0")
        found.append({one[:1].decode(): one[1:].decode() for one in fields})
        raw = raw[1 + length :]
    return found


async def test_tls_is_refused_and_messages_pass_as_they_came() -> None:
    database = Database()
    async with relaying(database.serve, PostgresRule()) as (_, relay), dial(relay.address) as one:
        for asked in (SSL, GSSENC):
            await one.send(asked)
            assert await one.read(1) == b"N"
        for message in (START, query("SELECT 1"), parse("SELECT 2")):
            await one.send(message)
            assert await one.read(len(READY)) == READY
        assert b"".join(database.got) == START + query("SELECT 1") + parse("SELECT 2")


async def test_a_cancel_request_passes() -> None:
    database = Database()
    async with relaying(database.serve, TooManyClients()) as (_, relay):
        async with dial(relay.address) as one:
            await one.send(CANCEL)
            await one.read(len(READY))
        assert database.got == [CANCEL]


@pytest.mark.parametrize(
    ("kind", "codes"),
    [
        (SessionsEnded, ["57P01"]),
        (PoolerError, ["57P01", "08P01"]),
        (QueryWaitTimeout, ["08P01"]),
    ],
)
async def test_a_session_is_ended_in_the_middle(
    kind: type[SessionsEnded], codes: list[str]
) -> None:
    database, rule = Database(), kind(1, "INSERT")
    ended = asyncio.Event()

    async def serve(pipe: Pipe) -> None:
        await database.serve(pipe)
        ended.set()

    async with relaying(serve, rule) as (_, relay), dial(relay.address) as one:
        for message in (START, query("BEGIN"), parse("SELECT")):
            await one.send(message)
            await one.read(len(READY))
        await one.send(parse("INSERT"))
        told = await errors(one)
        async with asyncio.timeout(5):
            await ended.wait()  # the server's side ends, too
    assert [error["C"] for error in told] == codes
    assert {error["S"] for error in told} == {"FATAL"}
    assert b"INSERT" not in b"".join(database.got)
    assert rule.played == 1


@pytest.mark.parametrize("message", [query, parse])
async def test_transactions_become_read_only(message: Callable[[str], bytes]) -> None:
    database, rule = Database(), ReadOnlyPrimary()
    async with relaying(database.serve, rule) as (_, relay), dial(relay.address) as one:
        await one.send(START)
        await one.read(len(READY))
        for sql in ("BEGIN ISOLATION LEVEL READ COMMITTED", "INSERT INTO a VALUES (1)"):
            await one.send(message(sql))
            await one.read(len(READY))
    assert database.got[1:] == [
        message("BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY"),
        message("INSERT INTO a VALUES (1)"),
    ]
    assert rule.played == 1


@pytest.mark.parametrize(("kind", "code"), [(TooManyClients, "53300"), (StartingUp, "57P03")])
async def test_a_session_is_refused(kind: type[TooManyClients], code: str) -> None:
    rule = kind(most=1)
    database = Database()
    async with relaying(database.serve, rule) as (_, relay):
        async with dial(relay.address) as one:
            await one.send(START)
            [error] = await errors(one)
            assert error["C"] == code
        async with dial(relay.address) as two:
            await two.send(START)
            assert await two.read(len(READY)) == READY
    assert rule.played == 1


async def test_only_a_query_and_a_parse_have_a_statement() -> None:
    assert PgMessage(b"Q", b"SELECT\0").statement == "SELECT"
    assert PgMessage(b"P", b"name\0SELECT\0\0\0").statement == "SELECT"
    assert PgMessage(b"B", b"name\0SELECT\0\0\0").statement == ""
