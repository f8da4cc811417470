"""`instep messages dead` and `instep sequences show`: what was accepted and is not delivered."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest

from instep import SequencerSettings
from instep.sequencing import GapPolicy, SequencePhase
from tests.instep.cli.cli_kit import failed, instep, lines
from tests.instep.runtime.messages.intake_kit import SCOPE, spoken, until

EXPIRING = "lot did:alice"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store with a message that has expired, and one that waits in a sequence that has failed."""
    url = f"sqlite:///{tmp_path_factory.mktemp('dead')}/s.db"

    async def fill() -> None:
        failing = SequencerSettings(gap_policy=GapPolicy.FAIL, gap_deadline_s=2)
        async with spoken(url, sequence=failing) as at:
            await at.say(1, 3)
            soon_us = time.time_ns() // 1_000 + 3_000_000
            await at.intake.open(EXPIRING, SequencerSettings(gap_deadline_s=3600))
            await at.say(2, scope=EXPIRING, expires_at_us=soon_us)

            async def over() -> bool:
                state = await at.intake.state(SCOPE)
                told = await at.rows("SELECT id FROM instep_number_end WHERE told = 'sent'")
                return state is not None and state.phase is SequencePhase.FAILED and bool(told)

            await until(over)

    asyncio.run(fill())
    return url


def test_it_is_listed_with_the_reasons(url: str, tmp_path: Path) -> None:
    found = lines(instep("messages", "dead", "list", "--store", url, "--format", "jsonl"))
    shown = [(one["stream"], one["number"], one["end"], one["frozen"]) for one in found]
    assert sorted(shown) == [(EXPIRING, 2, "expired", False), (SCOPE, 3, "failed", True)]
    assert {one["told"] for one in found} == {"sent", ""}
    assert all(one["body"] == {"number": one["number"]} for one in found)
    table = instep("messages", "dead", "list", "--store", url).stdout
    assert "2 messages" in table
    only = ("--stream", EXPIRING, "--format", "jsonl")
    [expired] = lines(instep("messages", "dead", "list", "--store", url, *only))
    one = instep("messages", "dead", "show", str(expired["id"]), "--store", url).stdout
    assert "reason: expired" in one
    assert '{"number": 2}' in one
    file = tmp_path / "dead.jsonl"
    told = instep("messages", "dead", "export", "--store", url, "--output", str(file))
    assert json.loads(told.stdout)["rows"] == 2
    assert [json.loads(line) for line in file.read_text().splitlines()] == found


def test_what_its_sender_was_told_is_not_replayed_by_mistake(url: str) -> None:
    found = lines(instep("messages", "dead", "list", "--store", url, "--format", "jsonl"))
    ids = {one["stream"]: str(one["id"]) for one in found}
    for stream, why in ((EXPIRING, "--although-told"), (SCOPE, "instep sequences give-up")):
        done = instep("messages", "dead", "replay", ids[stream], "--store", url)
        assert done.exit_code == 1
        assert why in done.stdout
    assert "not clear" in failed(instep("messages", "dead", "replay", "--store", url), 2)
    dropped = ("messages", "dead", "drop", ids[SCOPE], "--store", url)
    assert "lost for good" in failed(instep(*dropped), 2)
    assert "has failed" in failed(instep(*dropped, "--yes"), 2)
    assert "has the ID 999" in failed(instep("messages", "dead", "show", "999", "--store", url), 2)


def test_what_became_of_each_number_is_shown(url: str) -> None:
    first, *ends = lines(instep("sequences", "show", EXPIRING, "--store", url, "--format", "jsonl"))
    assert (first["sequence"], first["expired"]) == (EXPIRING, "2")
    [end] = ends
    assert (end["numbers"], end["end"], end["told"]) == ("2", "expired", "sent")
    table = instep("sequences", "show", SCOPE, "--store", url).stdout
    assert "reason: messages 2 did not come in time" in table
    assert "1: delivered" in table
    assert "there is no sequence" in failed(instep("sequences", "show", "x", "--store", url), 2)
    closed = instep("sequences", "close", "--stream", SCOPE, "--store", url)
    assert closed.exit_code == 1
    assert "`give-up` delivers what it kept" in closed.stdout
