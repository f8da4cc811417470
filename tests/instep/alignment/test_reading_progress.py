"""Whether connections come further than those before them (A16)."""

from __future__ import annotations

from typing import Any

import msgspec

from instep import Phase, Position
from instep.alignment.reading_progress import NO_PROGRESS_AFTER, ReadingProgress


def ended(*positions: dict[str, Any]) -> ReadingProgress:
    progress = ReadingProgress()
    for position in positions:
        begun = Position(lineage=1, phase=Phase.ALIGNING)
        progress.ended(msgspec.structs.replace(begun, **position))
    return progress


def test_a16_to_read_the_same_again_is_no_progress() -> None:
    again = {"offsets": {"0": 49}}
    progress = ended(*[again] * NO_PROGRESS_AFTER)
    assert not progress.stalled
    progress.ended(Position(lineage=1, phase=Phase.ALIGNING, offsets={"0": 12}))
    assert progress.stalled


def test_a16_one_partition_that_comes_further_is_progress() -> None:
    same = {"offsets": {"0": 49, "1": 3}}
    assert ended(same, same, same, {"offsets": {"0": 7, "1": 4}}).fruitless == 0
    assert ended(same, {"offsets": {"0": 49}}, {"offsets": {"2": 0}}).fruitless == 0


def test_a16_without_offsets_the_append_time_tells() -> None:
    assert ended({"appended_at_us": 5}, {"appended_at_us": 5}, {}).fruitless == 2
    assert ended({"appended_at_us": 5}, {"appended_at_us": 6}).fruitless == 0


def test_a16_an_alignment_is_progress_wherever_it_ends() -> None:
    for phase in (Phase.ALIGNED, Phase.SWEEP_HELD):
        assert ended({}, {}, {}, {"phase": phase}).fruitless == 0
    assert ended({}, {}, {"phase": Phase.LOST}).stalled


def test_a16_a_log_that_is_built_anew_each_time_is_no_progress() -> None:
    logs = [{"lineage": lineage, "offsets": {"0": 90 + lineage}} for lineage in range(1, 9)]
    assert ended(*logs).fruitless == 7
    assert ended(*logs, {"lineage": 8, "offsets": {"0": 99}}).fruitless == 0
