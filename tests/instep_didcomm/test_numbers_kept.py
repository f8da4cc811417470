"""What becomes of numbers that the policy of a gap ends: on the wire, in commands, in the store."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from instep import ConsumerSettings, IntakeSettings, Receiver
from instep_didcomm import DidcommListener, read_options
from instep_sql import SqlStore
from tests.instep.cli.cli_kit import instep, lines
from tests.instep.runtime.messages.intake_kit import until
from tests.instep_didcomm.listener_kit import AUCTION, plain, post

SCOPE = "lot-7 did:ex:alice"
FAIL = {"gap_policy": "fail", "gap_deadline_s": 1.0, "gap_repeat_s": 0.1}
SKIP = {"gap_policy": "skip", "gap_deadline_s": 0.5}


@asynccontextmanager
async def receiving(url: str, **options: Any) -> AsyncIterator[DidcommListener]:
    table = {"listen": "127.0.0.1:0", "protocols": [AUCTION], **options}
    listener = DidcommListener(read_options(table, "x"))
    settings = ConsumerSettings(intake=IntakeSettings(poll_s=0.05))
    async with Receiver("auction", listener, SqlStore(url), settings) as receiver:
        await receiver.aligned(timeout_s=30)
        yield listener


async def statuses(listener: DidcommListener, *orders: int) -> list[int]:
    return [(await post(listener.address, plain(order)))[0] for order in orders]


async def is_over(path: Path, order: int) -> None:
    """Wait until the store says that delivery does not wait for this number any more."""

    async def over() -> bool:
        with closing(sqlite3.connect(path)) as connection:
            rows = connection.execute("SELECT state FROM instep_sequence").fetchall()
        states = [json.loads(state) for (state,) in rows]
        return any(s.get("phase") == "failed" or s["next_number"] > order for s in states)

    await until(over)


def kept(path: Path) -> set[int]:
    """The numbers of all messages that any table has."""
    with closing(sqlite3.connect(path)) as connection:
        tables = ("instep_inbox", "instep_message")
        found = [connection.execute(f"SELECT number FROM {table}").fetchall() for table in tables]
    return {number for rows in found for (number,) in rows}


def numbers(url: str) -> list[int]:
    return [
        line["number"] for line in lines(instep("messages", "--store", url, "--format", "jsonl"))
    ]


async def test_what_was_answered_202_is_kept_when_the_sequence_fails(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    url = f"sqlite:///{path}"
    async with receiving(url, sequence=FAIL) as listener:
        assert await statuses(listener, 1, 3, 4) == [202, 202, 202]
        await is_over(tmp_path / "m.db", 2)
        assert kept(path) == {1, 3, 4}
        assert await statuses(listener, 3) == [202], "an acknowledgement is not taken back"
    dead = await asyncio.to_thread(
        instep, "messages", "dead", "list", "--store", url, "--format", "jsonl"
    )
    assert [(one["number"], one["body"]["body"]["amount"]) for one in lines(dead)] == [
        (3, 300),
        (4, 400),
    ]


async def test_the_default_waits_for_usual_back_offs_to_be_over(tmp_path: Path) -> None:
    """202 is not taken back by the first example of the page: a day passes before it fails."""
    settings = read_options({"listen": "127.0.0.1:0", "protocols": [AUCTION]}, "x").sequence
    waited_s = settings.gap_deadline_s + settings.gap_attempts * settings.gap_repeat_s
    assert waited_s >= 86_400
    async with receiving(f"sqlite:///{tmp_path}/m.db") as listener:
        assert await statuses(listener, 1, 3, 4, 2, 5, 3) == [202] * 6


async def test_give_up_delivers_what_a_failed_sequence_kept(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/m.db"
    arguments = ("--stream", SCOPE, "--store", url)
    async with receiving(url, sequence=FAIL) as listener:
        assert await statuses(listener, 1, 3, 4) == [202, 202, 202]
        await is_over(tmp_path / "m.db", 2)
        told = await asyncio.to_thread(instep, "sequences", "give-up", *arguments)
        assert told.exit_code == 0, told.output

        async def delivered() -> bool:
            return await asyncio.to_thread(numbers, url) == [1, 3, 4]

        await until(delivered)
    shown = await asyncio.to_thread(
        instep, "sequences", "show", SCOPE, "--store", url, "--format", "jsonl"
    )
    ends = [(one["numbers"], one["end"], one["by"]) for one in lines(shown)[1:]]
    assert ends == [("1", "delivered", ""), ("2", "lost", "operator"), ("3-4", "delivered", "")]


async def test_losses_and_deviations_are_told_after_the_process_has_ended(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/m.db"
    async with receiving(url, sequence=SKIP) as listener:
        assert await statuses(listener, 1, 3) == [202, 202]
        await is_over(tmp_path / "m.db", 2)
        other = plain(3, body={"amount": 1})
        assert (await post(listener.address, other))[0] == 409
    for command in (["status"], ["sequences", "list", "--troubled"]):
        [one] = lines(
            await asyncio.to_thread(instep, *command, "--store", url, "--format", "jsonl")
        )
        assert one["lost"] == "2"
        assert one["content_changed"] == 1
        shown = (await asyncio.to_thread(instep, *command, "--store", url)).stdout
        assert "lost 2" in " ".join(shown.split())


async def test_the_reason_of_a_failure_is_told_after_the_process_has_ended(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/m.db"
    async with receiving(url, sequence=FAIL) as listener:
        assert await statuses(listener, 1, 3) == [202, 202]
        await is_over(tmp_path / "m.db", 2)
    [one] = lines(
        await asyncio.to_thread(
            instep, "sequences", "list", "--troubled", "--store", url, "--format", "jsonl"
        )
    )
    assert one["reason"] == "messages 2 did not come in time"
    assert (
        "messages 2 did not come"
        in (await asyncio.to_thread(instep, "sequences", "list", "--store", url)).stdout
    )


@pytest.mark.parametrize("policy", ["skip", "fail"])
async def test_a_deadline_counts_from_when_the_gap_was_seen_right_after_a_start(
    tmp_path: Path, policy: str
) -> None:
    """With a pause between two actions that no test would outwait."""
    sequence = {"gap_policy": policy, "gap_deadline_s": 0.2, "gap_repeat_s": 3600.0}
    async with receiving(f"sqlite:///{tmp_path}/m.db", sequence=sequence) as listener:
        assert await statuses(listener, 1, 3) == [202, 202]
        await is_over(tmp_path / "m.db", 2)


pytestmark = pytest.mark.asyncio
