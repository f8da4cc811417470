"""What a store at rest says of the consumers that write it, in the shape of their own health: the
same figures and the same judgement, whether they run or not.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING

from instep.alignment.lag import Fidelity, fidelity
from instep.model.entities import StreamStatus
from instep.model.position import Phase
from instep.runtime.health import (
    ConsumerState,
    Health,
    IntakeHealth,
    StreamHealth,
    margin_s,
)

if TYPE_CHECKING:
    from instep.ports.reader import Follower, SequenceCounts

__all__ = ["behind_of", "margin_s", "stored_fidelity", "stored_healths"]


def behind_of(one: StreamStatus, now_us: int) -> float | None:
    """The greatest age in seconds of a change that the store may lack; None: not known."""
    if one.position.phase is Phase.NOT_OFFERED:
        return None
    offset_us = int(one.info.get("clock_offset_us") or 0)
    known_us = one.position.watermark_us
    if one.report is not None and one.report.known_at_us:
        # Of a quiet stream: its position is committed anew less often (`heartbeat_s`).
        known_us = max(known_us, one.report.known_at_us + offset_us)
    return max(0.0, (now_us + offset_us - known_us) / 1e6) if known_us else None


def stored_fidelity(one: StreamStatus, behind: float | None) -> Fidelity | None:
    """What that age costs (A8); None: not known."""
    if behind is None:
        return None
    if one.position.phase is Phase.LOST:
        return Fidelity.LOST
    info = one.info
    return fidelity(behind, info.get("compaction_delay_s"), info.get("tombstone_retention_s"))


def stored_healths(
    streams: Sequence[StreamStatus],
    sequences: Mapping[str, SequenceCounts],
    followers: Mapping[str, Follower],
    consumers: Collection[str],
    now_us: int,
) -> list[Health]:
    """The health of these consumers (empty: of all that the store has), as the store has it."""
    following = {one.consumer for one in streams}
    named = following | set(sequences) | set(followers)
    return [
        Health(
            consumer=name,
            state=ConsumerState.RUNNING
            if name in following or name in followers
            else ConsumerState.STOPPED,
            error=_error(name, following, followers),
            streams=tuple(_stream(one, now_us) for one in streams if one.consumer == name),
            intake=None
            if name in following
            else _intake(sequences.get(name), followers.get(name), now_us),
            store_age_s=0.0,
        )
        for name in sorted(consumers or named)
    ]


def _error(name: str, following: Collection[str], followers: Mapping[str, Follower]) -> str:
    """Why nobody keeps this consumer, as far as no stream tells."""
    if name in following:
        return ""
    follower = followers.get(name)
    if follower is None:
        return "nothing of it was stored yet"
    heard = follower.heard_s <= follower.stale_after_s
    return "" if heard else f"nobody receives: last heard {follower.heard_s:,.0f} s ago"


def _stream(one: StreamStatus, now_us: int) -> StreamHealth:
    fresh, position, report, info = one.freshness, one.position, one.report, one.info
    behind = behind_of(one, now_us)
    since_s = max(0.0, (now_us - one.updated_at_us) / 1e6)
    return StreamHealth(
        stream=one.stream,
        phase=position.phase,
        attempt=position.attempt,
        caught_up=report is not None and report.caught_up,
        records=position.records,
        read_delay_s=behind or 0.0,
        fidelity=stored_fidelity(one, behind) or Fidelity.FULL,
        connected=report is not None and report.connected,
        last_error="" if report is None else report.trouble,
        deviations=one.deviations,
        quarantined=one.quarantined,
        compaction_delay_s=info.get("compaction_delay_s"),
        tombstone_retention_s=info.get("tombstone_retention_s"),
        unproven=fresh.unproven,
        attempts_without_alignment=position.unaligned_attempts,
        unreadable=fresh.unreadable,
        refused=0 if report is None else report.refused,
        readable=report is not None and report.readable,
        # Who was never heard does not follow it.
        heard_s=inf if one.heard_s is None else one.heard_s,
        stale_after_s=one.stale_after_s,
        commit_age_s=since_s,
        behind_s=behind,
        # At least so long: a commit may have come since.
        phase_age_s=since_s,
    )


def _intake(
    counts: SequenceCounts | None, follower: Follower | None, now_us: int
) -> IntakeHealth | None:
    if counts is None and follower is None:
        return None
    if counts is None:
        # Here, not above: `instep status` imports next to nothing.
        from instep.ports.reader import SequenceCounts  # noqa: PLC0415 - see above

        counts = SequenceCounts(0, 0, 0)
    heard = follower is not None and follower.heard_s <= follower.stale_after_s
    return IntakeHealth(
        address="as last heard" if heard else "",
        accepted=0,
        duplicates=0,
        refused=0,
        commits=0,
        queued=0,
        delivered=0,
        handler_failures=0,
        blocked=tuple(map(str, range(counts.blocked))),
        deviations=counts.deviations,
        sequences=counts.sequences,
        held=counts.held,
        dead=counts.dead,
        dead_age_s=(now_us - counts.dead_since_us) / 1e6 if counts.dead_since_us else None,
    )
