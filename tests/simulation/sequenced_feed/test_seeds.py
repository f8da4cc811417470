"""Seeds of the numbered entities: the store agrees in the end, and never lies before."""

from __future__ import annotations

import pytest

from instep.model.position import Phase, Position
from instep.model.records import RecordChunk
from instep.ports import Receipt
from instep.runtime.streams.sequenced_feed import NumberedRecords, SequencedFeed
from tests.simulation.seeds import run_numbered
from tests.simulation.sequenced_feed.simulation import simulate_numbered

SEEDS = 100
AT_ONCE = 20


@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_seeds(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        simulate_numbered(seed)


def test_a_seed_makes_the_same_story_each_time() -> None:
    assert simulate_numbered(3) == simulate_numbered(3)


def _found(first: int = 0) -> str:
    """What the first to fail of forty seeds has found."""
    failures = (failure for seed in range(first, first + 40) if (failure := run_numbered(seed)))
    return next(failures, "")


def test_an_answer_before_the_commit_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    received = SequencedFeed._chunk

    def answers_at_once(self: SequencedFeed) -> RecordChunk | None:
        chunk = received(self)
        for pending in self._uncommitted:
            pending.answer()
        return chunk

    monkeypatch.setattr(SequencedFeed, "_chunk", answers_at_once)
    found = _found()
    assert "was confirmed" in found
    assert "python -m tests.simulation --sequenced-feed-seed" in found


def test_a_message_that_is_lost_silently_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SequencedFeed, "_act_on", lambda *_: None)
    assert "not equal" in _found()


def test_other_content_that_is_taken_for_a_copy_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SequencedFeed, "_is_repeat", lambda *_, **__: True)
    assert _found()


def test_a_message_that_is_applied_over_a_later_baseline_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SequencedFeed, "baseline_version", lambda *_: None)
    assert _found()


def test_a_message_that_is_confirmed_before_the_baseline_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    committed = SequencedFeed.committed

    def opens_at_once(self: SequencedFeed, position: Position) -> None:
        self._baseline_durable = True
        self._wake.set()
        committed(self, position)

    monkeypatch.setattr(SequencedFeed, "committed", opens_at_once)
    assert _found()


def test_a_confirmation_ahead_of_a_store_that_calls_itself_aligned_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    committed = SequencedFeed._baseline_committed

    def goes_on_confirming(self: SequencedFeed, phase: Phase) -> None:
        committed(self, phase)
        self._baselining = self.settings.confirm_while_baselining

    monkeypatch.setattr(SequencedFeed, "_baseline_committed", goes_on_confirming)
    assert "was confirmed" in _found()


def test_a_needless_realignment_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    accept = SequencedFeed.accept

    async def realigns_at_a_copy(self: SequencedFeed, message: NumberedRecords) -> Receipt:
        if message.number in self._pending:
            self.realign("a copy came")
        return await accept(self, message)

    monkeypatch.setattr(SequencedFeed, "accept", realigns_at_a_copy)
    # Rare: most copies come while another reason holds.
    assert "with a reason" in _found(first=140)
