"""Seeds of the simulated sequences: nothing lost, doubled, out of order or claimed early."""

from __future__ import annotations

import asyncio

import pytest

from instep.runtime.messages.intake import MessageIntake
from instep.runtime.messages.requests import PendingRequest
from tests.simulation.sequencing.simulation import SequencesFailedError, simulate_sequences

SEEDS = 20
"""Of every run; `make simulate` tries more."""
AT_ONCE = 10


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
