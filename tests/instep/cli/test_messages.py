"""`instep messages`, and what status and quarantine show of numbered sequences."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from instep import Message
from instep.ports import Receipt
from instep.ports.message_store import HandlerConnection
from instep.sequencing import Cancel
from tests.instep.cli.cli_kit import failed, instep, lines
from tests.instep.runtime.messages.intake_kit import (
    SCOPE,
    Spoken,
    message,
    receive_together,
    spoken,
    until,
)


async def _fail(_message: Message, _connection: HandlerConnection) -> None:
    raise RuntimeError("odd")


@pytest.fixture
def filled(tmp_path: Path) -> str:
    """A store with delivered messages: in a sequence with a gap, and without a number."""
    url = f"sqlite:///{tmp_path}/m.db"

    async def fill() -> None:
        async with spoken(url) as at:
            await at.say(2, 1, 4)
            await at.intake.apply(SCOPE, [Cancel([(7, 8)])])
            for id, body in (("t", b"plain"), ("b", b"\xff"), ("j", b'{"a":\n1}')):
                attributes = b'{"type":\n"%b"}' % id.encode()
                await at.intake.receive(
                    message(-1, "other", id=id, body=body, sender="west", attributes=attributes)
                )

    asyncio.run(fill())
    return url


@pytest.fixture
def blocked(tmp_path: Path) -> str:
    """A store with a sequence that is blocked by the message in quarantine."""
    url = f"sqlite:///{tmp_path}/q.db"

    async def fill() -> None:
        async with spoken(url, handler=_fail, handler_attempts=1) as at:
            await at.say(1, 2)
            await until(lambda: in_quarantine(at))

    asyncio.run(fill())
    return url


async def in_quarantine(at: Spoken) -> list[int]:
    return [one.id async for one in at.store.reader.quarantine()]


def test_messages_stand_in_the_order_of_delivery(filled: str) -> None:
    shown = lines(instep("messages", "--store", filled, "--format", "jsonl"))
    assert [(line["stream"], line["number"]) for line in shown] == [
        (SCOPE, 1),
        (SCOPE, 2),
        ("other", None),
        ("other", None),
        ("other", None),
    ]
    assert [line["body"] for line in shown] == [
        {"number": 1},
        {"number": 2},
        "plain",
        {"base64": "/w=="},
        {"a": 1},
    ]
    assert [line["attributes"] for line in shown[1:3]] == [{}, {"type": "t"}]
    assert [line["sender"] for line in shown[1:3]] == ["", "west"]
    members = ["consumer", "stream", "number", "message_id"]
    members += ["sender", "received_at", "delivered_at"]
    assert list(shown[0]) == [*members, "attributes", "body", "attachments"]
    assert shown[0]["message_id"] == f"{SCOPE}#1"
    assert shown[0]["delivered_at"] >= shown[0]["received_at"] > "2026"


def test_one_stream_and_one_that_is_not_there(filled: str) -> None:
    shown = lines(instep("messages", "--store", filled, "--stream", SCOPE, "--format", "jsonl"))
    assert [line["number"] for line in shown] == [1, 2]
    assert f"it has: other, {SCOPE}" in failed(
        instep("messages", "--store", filled, "--stream", "x"), 2
    )


def test_the_table_counts_the_messages(filled: str) -> None:
    shown = instep("messages", "--store", filled)
    assert shown.exit_code == 0
    assert shown.stdout.splitlines()[-1] == "5 messages"


def test_status_shows_ranges_and_gaps(filled: str) -> None:
    shown = {
        line["sequence"]: line
        for line in lines(instep("status", "--store", filled, "--format", "jsonl"))
    }
    one = shown[SCOPE]
    assert (one["received"], one["missing"], one["cancelled"]) == ("1-2,4", "3", "7-8")
    assert (one["next_number"], one["gaps"], one["held"], one["blocked"]) == (3, 1, 1, False)
    assert "1-2,4" in instep("status", "--store", filled).stdout


def test_a_message_in_quarantine_is_shown_and_replayed_by_its_handler(blocked: str) -> None:
    (one,) = lines(instep("quarantine", "list", "--store", blocked, "--format", "jsonl"))
    assert (one["stream"], one["token"]) == (SCOPE, f"1 {SCOPE}#1")
    (status,) = lines(instep("status", "--store", blocked, "--format", "jsonl"))
    assert (status["blocked"], status["waiting"]) == (True, 1)
    assert '{"number": 1}' in instep("quarantine", "show", "--store", blocked, "1").stdout
    replayed = instep("quarantine", "replay", "--store", blocked, "--stream", SCOPE, "--all")
    assert replayed.exit_code == 0
    assert "the handler is given it again" in replayed.stdout
    taken: list[int] = []

    async def take(message: Message, _connection: HandlerConnection) -> None:
        taken.append(message.number)

    async def go_on() -> list[Receipt]:
        async with spoken(blocked, handler=take) as at:
            receipts = await at.say(3)
            await until(lambda: asyncio.sleep(0, len(taken) == 3))
            return receipts

    asyncio.run(go_on())
    assert taken == [1, 2, 3]


def test_a_dropped_message_lets_its_sequence_go_on(blocked: str) -> None:
    dropped = instep("quarantine", "drop", "--store", blocked, "1", "--yes")
    assert dropped.stdout == "1 dropped\n"
    (status,) = lines(instep("status", "--store", blocked, "--format", "jsonl"))
    assert (status["blocked"], status["waiting"]) == (False, 1)


def test_of_many_sequences_status_counts_and_shows_those_in_trouble(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/many.db"

    async def fill() -> None:
        async with spoken(url) as at:
            await receive_together(at.intake, [message(1, f"t{n}") for n in range(150)])
            await at.say(3, scope="t7")

    asyncio.run(fill())
    shown = instep("status", "--store", url).stdout
    assert "east: 150 sequences, 1 message held, 0 blocked" in shown
    assert "t7" in shown
    assert "t8" not in shown
    troubled, counts = lines(instep("status", "--store", url, "--format", "jsonl"))
    assert troubled["sequence"] == "t7"
    assert counts == {"consumer": "east", "sequences": 150, "held": 1, "blocked_sequences": 0}
    assert len(lines(instep("sequences", "list", "--store", url, "--format", "jsonl"))) == 150
