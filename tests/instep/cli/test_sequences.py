"""`instep sequences`: what is stuck is shown, and helped by whichever process receives."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from instep import SequencerSettings
from instep.sequencing import Cancel, GapPolicy, SequencePhase
from tests.instep.cli.cli_kit import failed, instep, lines
from tests.instep.runtime.messages.intake_kit import SCOPE, spoken, until


@pytest.fixture
def stuck(tmp_path: Path) -> str:
    """A store with a sequence that has failed, and one without a fault."""
    url = f"sqlite:///{tmp_path}/s.db"

    async def fill() -> None:
        failing = SequencerSettings(gap_policy=GapPolicy.FAIL, gap_deadline_s=0, gap_repeat_s=0.01)
        async with spoken(url, sequence=failing) as at:
            await at.say(1, 3)
            await at.say(1, scope="good bob")

            async def fails() -> bool:
                state = await at.intake.state(SCOPE)
                return state is not None and state.phase is SequencePhase.FAILED

            await until(fails)

    asyncio.run(fill())
    return url


def test_sequences_are_listed(stuck: str) -> None:
    shown = instep("sequences", "list", "--store", stuck).stdout
    assert f"east / {SCOPE}: failed, next 2" in shown
    assert "east / good bob: open, next 2" in shown
    (one,) = lines(instep("sequences", "list", "--store", stuck, "--troubled", "--format", "jsonl"))
    assert (one["sequence"], one["phase"]) == (SCOPE, "failed")
    assert (
        lines(instep("sequences", "list", "--store", stuck, "--stream", "no", "--format", "jsonl"))
        == []
    )


def test_ranges_and_deadlines_are_shown(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    waiting = SequencerSettings(gap_deadline_s=3600, idle_timeout_s=7200)
    expires_at_us = 4_000_000_000_000_000

    async def fill() -> None:
        async with spoken(url) as at:
            await at.intake.open(SCOPE, waiting, expires_at_us=expires_at_us)
            await at.intake.apply(SCOPE, [Cancel([(2, 2)])])
            await at.say(1, 4)
            await at.intake.open("idle", SequencerSettings())

    asyncio.run(fill())
    one, idle = lines(instep("sequences", "list", "--store", url, "--format", "jsonl"))
    assert (one["received"], one["missing"], one["cancelled"]) == ("1,4", "3", "2")
    assert one["expires_at"] == "2096-10-02T07:06:40.000000Z"
    assert one["updated_at"] < one["due_at"] < one["expires_at"]
    assert (idle["due_at"], idle["expires_at"]) == (None, None)
    shown = instep("sequences", "list", "--store", url).stdout
    assert f"missing 3, cancelled 2, due {one['due_at']}, 1 held" in shown


def test_a_stuck_sequence_is_helped_by_the_next_process_that_receives(stuck: str) -> None:
    arguments = ("--store", stuck, "--stream", SCOPE, "--next", "4", "--wait", "0")
    told = instep("sequences", "reset", *arguments).stdout
    assert "does it within seconds" in told

    async def go_on() -> list[int]:
        async with spoken(stuck) as at:

            async def done() -> bool:
                return not await at.rows(
                    "SELECT id FROM instep_sequence_request WHERE outcome IS NULL"
                )

            await until(done)
            await at.say(4, 6)
            return await at.numbers()

    assert asyncio.run(go_on()) == [1, 4]
    chosen = ("--store", stuck, "--stream", SCOPE, "--consumer", "east", "--through", "5")
    quick = ("--wait", "0", "--format", "jsonl")
    [asked] = lines(instep("sequences", "give-up", *chosen, *quick))
    assert asked == {
        "consumer": "east",
        "sequence": SCOPE,
        "action": "give-up",
        "number": 5,
        "outcome": "",
    }
    [asked] = lines(instep("sequences", "close", *chosen[:4], *quick))
    assert (asked["action"], asked["number"]) == ("close", None)


def test_an_unknown_sequence_is_an_error(stuck: str) -> None:
    for arguments, what in (
        (["--stream", "no"], "there is no sequence 'no'"),
        (["--stream", SCOPE, "--consumer", "west"], "the store has no consumer 'west'"),
    ):
        assert what in failed(instep("sequences", "close", "--store", stuck, *arguments), 2)
