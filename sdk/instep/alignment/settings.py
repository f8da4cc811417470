"""The knobs of an alignment, with the reasons for their defaults."""

from __future__ import annotations

from typing import Annotated

import msgspec

from instep.model.limits import Count, Seconds, Share

__all__ = ["AlignmentSettings"]


class AlignmentSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How an alignment comes to its sweep."""

    quiet_s: Seconds = 5.0
    """A stream that is ACTIVE and silent this long has delivered what its log holds."""
    unreached_quiet_s: Seconds = 60.0
    """The same, where the last record committed before the attempt has not been read: it may be
    compacted away, or the provider is merely slow, so the silence must be longer.
    """
    assumed_compaction_delay_s: Seconds = 600.0
    """Where the provider declares none (TR-548 4.3 proposes ten minutes)."""
    sweep_guard_share: Share = 0.5
    """A sweep of more than this share of a stream's entities is held (A6), if it is also more than
    `sweep_guard_records`.
    """
    sweep_guard_records: Annotated[int, msgspec.Meta(ge=0)] = 100
    """A sweep of at most this many entities is never held."""
    sweep_step_records: Count = 2_000
    """Entities removed with one commit, so that new records are never kept waiting for long."""
    heartbeat_s: Seconds = 900.0
    """A silent stream's position is renewed this often, so that a restart knows how long it was
    away; while entities of it are unproven, at least once a minute.
    """
    lost_realigns: Annotated[int, msgspec.Meta(ge=0)] = 2
    """Realignments in a row, begun at once, because of the read delay alone. After them the stream
    is lost (A8): it is too slow for its log, or a clock is wrong.
    """
    lost_retry_s: Seconds = 60.0
    """The shortest time until a lost stream that is read in time again realigns. It doubles with
    each such realignment that does not help.
    """
    lost_retry_max_s: Seconds = 3_600.0
    """The time of `lost_retry_s` grows to this at most."""
    rebaseline_min_s: Seconds = 60.0
    """Shortest time between baselines that are read because of unknown tombstones, or of gaps
    between offsets that are known to be sparse (A18).
    """
    probe_min_s: Seconds = 60.0
    """Shortest time between two probes of a stream (A2): a doubt that comes sooner begins an
    attempt.
    """
    empty_confirm_s: Seconds = 30.0
    """A log that holds nothing states "none" where it stays empty for so long, and others of the
    provider have content (A19).
    """
