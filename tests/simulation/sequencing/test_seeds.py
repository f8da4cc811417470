"""Seeds of the simulated sequences: nothing lost, doubled, out of order or claimed early."""

from __future__ import annotations

import asyncio

import pytest

from instep.runtime.messages.intake import MessageIntake
from instep.runtime.messages.requests import PendingRequest
from instep_sql.messages import dead_letter
from tests.simulation.seeds import run_endings
from tests.simulation.sequencing.endings import simulate_endings
from tests.simulation.sequencing.simulation import SequencesFailedError, simulate_sequences

SEEDS = 20
"""Of every run; `make simulate` tries more."""
AT_ONCE = 10
_DELETE = """
    DELETE FROM instep_inbox
    WHERE ?1 = ?1 AND ?2 = ?2 AND ?3 = ?3 AND ?4 = ?4 AND ?5 = ?5 AND sequence_no = ?6
      AND stage = 0 AND epoch = ?7 AND number BETWEEN ?8 AND ?9
"""
"""In the place of the statement that moves messages to the dead letter."""


@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_seeds(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        simulate_sequences(seed)


KEPT = {1891: "an answer that was lost left a sequence full of messages that had been delivered"}


@pytest.mark.parametrize("seed", KEPT)
def test_a_seed_that_once_failed(seed: int) -> None:
    simulate_sequences(seed)


def test_a_seed_makes_the_same_story_each_time() -> None:
    assert simulate_sequences(3) == simulate_sequences(3)


def test_an_answer_before_the_commit_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    done = MessageIntake._commit_until_durable

    async def answers_at_once(self: MessageIntake, requests: list[PendingRequest]) -> list[None]:
        # The receipts are made of what the sequencer says, before the store has said anything.
        commit = self._store.commit

        async def late(group: object) -> None:
            for request in requests:
                request.answer(None)
            await asyncio.sleep(0.05)
            await commit(group)  # type: ignore[arg-type]

        monkeypatch.setattr(self._store, "commit", late)
        try:
            return await done(self, requests)
        finally:
            monkeypatch.setattr(self._store, "commit", commit)

    monkeypatch.setattr(MessageIntake, "_commit_until_durable", answers_at_once)
    with pytest.raises(SequencesFailedError, match="durable is"):
        simulate_sequences(0)


KEPT_ENDINGS = {
    5875: "what was replayed of a forgotten count was in the way of its name that came back",
    100877: "a reset came before a message that was stored, and whose answer was lost",
    100026: "the simulation did not wait for a fault that had failed before",
    300782: "what a failed sequence kept expired after its end, and stopped all sequences",
    100197: "a sender cancelled what an operator had delivered, and the record told the cancel",
}


@pytest.mark.parametrize("seed", KEPT_ENDINGS)
def test_an_ending_that_once_failed(seed: int) -> None:
    simulate_endings(seed)


@pytest.mark.parametrize(
    "first",
    [
        *range(0, SEEDS, AT_ONCE),
        *(pytest.param(n, marks=pytest.mark.long) for n in range(SEEDS, 100, AT_ONCE)),
    ],
)
def test_s13_accepted_is_delivered_or_dead_and_the_record_says_which(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        simulate_endings(seed)


def test_a_body_that_is_lost_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decision that deletes what was accepted, as the sequencer once did."""
    monkeypatch.setattr(dead_letter, "_BURY", _DELETE)
    found = [run_endings(seed) for seed in range(AT_ONCE)]
    assert any("in no table" in one for one in found)
