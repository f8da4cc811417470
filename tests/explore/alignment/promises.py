"""What each commit, each sweep and each notice of an alignment must be, said of what a driver sees.

- A1: the position of a batch is that of its last record, and one without records moves nothing.
- A5, A6: a sweep that would remove too much is held, and no other.
- A8: a commit that carries nothing but time is made no more often than it must be.
- What is told of a phase is told once it is durable, once, and with what the sweep has removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from instep.alignment.effects import Effect, Notice, NoticeKind
from instep.alignment.settings import AlignmentSettings
from instep.model.batches import Batch
from instep.model.position import Phase, Position
from instep.model.records import Record
from instep.model.streams import SweepEstimate
from tests.explore.search import Violation

__all__ = ["check_commit", "check_notices", "is_guarded"]

_US: Final = 1_000_000
_OF_PHASES: Final = (NoticeKind.ALIGNED, NoticeKind.SWEEP_HELD, NoticeKind.CONFIRMING)


def check_commit(
    before: Position, batch: Batch, delivered: Record | None, *, least_s: float
) -> None:
    """Compare a batch with the position that it moves and with the delivery that it is made of.
    `least_s`: no commit of time alone comes sooner behind another one.
    """
    after = batch.position
    if after.ordinal != before.ordinal + 1:
        raise Violation(f"the ordinal {before.ordinal} is followed by {after.ordinal} (A1)")
    if after.attempt not in (before.attempt, before.attempt + 1):
        raise Violation(f"attempt {before.attempt} is followed by {after.attempt}")
    anew = after.attempt != before.attempt
    came = 0 if delivered is None else len(batch.records)
    if after.records != before.records + came:
        raise Violation(f"{came} records came, and {after.records - before.records} are counted")
    if after.attempt_records != (0 if anew else before.attempt_records) + came:
        raise Violation(f"{came} records came, and {after.attempt_records} are of the attempt")
    if came and delivered is not None:
        where = after.token, after.offsets.get(delivered.partition, -1)
        if where != (delivered.token, delivered.offset):
            raise Violation(f"the position is {where}, behind {delivered.token} (A1)")
        if after.appended_us.get(delivered.partition) != delivered.appended_at_us:
            raise Violation("the position has not the time of its record (A1)")
    elif not anew and _place(after) != _place(before):
        raise Violation("a batch without records moves the position (A1)")
    # A doubt or a hold that was durable already is found once more, and committed.
    found = after.phase in (Phase.CONFIRMING, Phase.SWEEP_HELD)
    if not (came or batch.records or batch.sweep or found):
        same = replace(after, ordinal=before.ordinal, watermark_us=before.watermark_us) == before
        aged_us = after.watermark_us - before.watermark_us
        if same and not batch.deviations and aged_us <= least_s * _US:
            raise Violation(f"a commit that carries {aged_us / _US:g} s and nothing else")


def _place(position: Position) -> tuple[object, ...]:
    return position.token, position.offsets, position.appended_us, position.appended_at_us


def is_guarded(estimate: SweepEstimate, settings: AlignmentSettings) -> bool:
    """Whether a sweep would remove more than may go without being asked (A6)."""
    few = estimate.unmarked <= settings.sweep_guard_records
    return not few and estimate.unmarked / estimate.total > settings.sweep_guard_share


def check_notices(
    before: Position, after: Position, effects: Sequence[Effect], *, swept: int
) -> None:
    """Compare what is told behind a commit with the phases that are durable before and after it.
    `swept`: entities that the sweep has removed.
    """
    told = [one for one in effects if isinstance(one, Notice) and one.kind in _OF_PHASES]
    expected: list[NoticeKind] = []
    if after.phase is not before.phase:
        doubted = before.phase is Phase.CONFIRMING
        if after.phase is Phase.CONFIRMING:
            expected = [NoticeKind.CONFIRMING]
        elif after.phase is Phase.ALIGNED and not doubted:
            expected = [NoticeKind.ALIGNED]
        elif after.phase is Phase.SWEEP_HELD and not doubted:
            expected = [NoticeKind.SWEEP_HELD]
    if [one.kind for one in told] != expected:
        raise Violation(f"told: {[str(one.kind) for one in told]}, expected: {expected}")
    if expected == [NoticeKind.ALIGNED]:
        text = f"aligned by attempt {after.attempt}"
        if swept:
            text += f"; its sweep removed {swept} {'entity' if swept == 1 else 'entities'}"
        if told[0].text != text:
            raise Violation(f"told: {told[0].text!r}, expected: {text!r}")
