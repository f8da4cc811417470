"""Alignment with a log that has opaque tokens: the decisions, without I/O, clock or randomness.

Two rules hold this file together:

1. What decides about attempts, marks and sweeps is here and in the pure modules that it calls
   (`resume`, `continuity`, `readability`, `sweep_trigger`, `transitions`); the driver
   (`instep.runtime.streams.worker`, a simulation, a test) only carries out what it returns.
2. It does not know what a provider, a socket or a database is.

Theory of operation. A stream has a `Phase`, kept in its `Position` and so durable.
`transitions.TRANSITIONS` lists all transitions: what is not listed there raises, and changes
nothing.

An *attempt* is one reading of everything that exists: the log from its oldest record (`Mode.LOG`),
or current state by GET with the stream held meanwhile (`Mode.BASELINE`). While it is open, the
commit itself marks each stated entity with the attempt's number. When the attempt has seen enough,
entities with a lower number are swept, in steps that travel with ordinary batches. Marks are
numbers and only grow: nothing is ever unmarked, and an attempt that was interrupted goes on after
its own last token (A7).

An attempt is opened by `opened`, on a stream that was really opened from its start. Whatever
calls for one (a provider that restarted us, a lost log, a lag past the tombstone retention, an
operator) only asks for the stream to be opened again, from the start. So a mistaken suspicion
costs a reading of the log, and can never sweep what exists. One case needs no second opening: a
restarted stream that is proven to begin at its oldest record (`continuity`) is taken over.

That a stream goes on where it was left is proven, or it is in doubt (`continuity`). While it is,
the phase is `CONFIRMING`, nothing is swept, and the driver makes a probe. Where it may not, the
doubt itself opens an attempt.

The driver's part: call `start` and open the stream there; call `opened`; for each delivery call
`receive`, commit the batch that it returns, call `committed`; call `tick` from time to time; before
`receive` and `tick` call `listened` where silence does not always count; after each call carry out
`effects`; at the end call `closed`. `now_us` is the provider's clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from instep.alignment.absence import (
    empty_notices,
    held_records,
    judge_empty,
    reread_due,
    unguarded,
    unproven_texts,
    with_holds,
    without_empty,
)
from instep.alignment.commit_batches import advanced_position, batch_at, decode_chunk
from instep.alignment.continuity import (
    Continuity,
    ContinuityCheck,
    at_place_of_another,
    ends_before,
    is_new_log,
    partition_of,
    proves_continued,
    same_record,
)
from instep.alignment.effects import (
    Effect,
    EstimateSweep,
    Notice,
    NoticeKind,
    ProbeOldest,
    ReadBaseline,
    Reopen,
)
from instep.alignment.gaps import GapDetector, gap_due, is_sparse
from instep.alignment.lag import Fidelity, LagMonitor
from instep.alignment.readability import Readability
from instep.alignment.resume import (
    NEVER_READ,
    ResumePoint,
    baseline_due,
    is_compacted,
    is_gapless,
    new_attempt,
    resume_point,
)
from instep.alignment.settings import AlignmentSettings
from instep.alignment.sweep_trigger import PartitionProgress
from instep.alignment.transitions import AlignmentEvent, phase_after
from instep.alignment.unknown_entities import (
    CHANGE_WITHOUT_ENTITY,
    absent_of,
    after_alignment,
    changes_met,
    realignment_due,
    without_known,
)
from instep.model.batches import Batch, CommitResult
from instep.model.lookups import EntityProof
from instep.model.position import RECENT_RECORDS, Phase, Position
from instep.model.records import DecodedRecords, Record, RecordChunk, RecordHeader
from instep.model.streams import Mode, Start, StreamInfo, StreamState, SweepEstimate

__all__ = ["Alignment", "AlignmentStatus"]

_US = 1_000_000
_NO_LOG = 0
"""The lineage of rows that are compared with no record."""
_NEVER_US = 1 << 62
_DOUBTS_SILENCE = (Phase.ALIGNED, Phase.ALIGNING, Phase.SWEEP_HELD, Phase.CONFIRMING)
"""A sweep that was begun rests on what was read before."""


class AlignmentStatus(msgspec.Struct, frozen=True):
    """How far an alignment has come, as its driver shows it."""

    phase: Phase = Phase.UNALIGNED
    """As durable, and so is `attempt`."""
    attempt: int = 0
    unproven: int = 0
    """Entities that the last sweep has left unproven (A17)."""
    caught_up: bool = False
    """Whether all that the log held when the stream was opened has come by."""
    unreadable: int = 0
    """Records of the attempt that could not be read."""
    refused: int = 0
    """The same, of all since the opening."""
    readable: bool = False
    """Whether any record could be read since the opening."""
    refusal: str = ""
    """Why nothing that the log held at the opening could be read; empty where something could."""
    sweep_held: bool = False
    """Whether a sweep durably waits for a decision, and none was made (A6)."""
    read_delay_s: float = 0.0
    fidelity: Fidelity = Fidelity.FULL
    """What the read delay lets the log still tell (A8)."""


class Alignment:
    """The alignment of one stream. The module docstring states what it promises and how it is
    driven.
    """

    def __init__(
        self,
        stream: StreamInfo,
        position: Position,
        settings: AlignmentSettings | None = None,
        *,
        latest_only: bool = False,
        marks_keys: bool = False,
    ) -> None:
        """`latest_only` and `marks_keys`: see `Sink`."""
        self.stream = stream
        self.position = position
        """The committed position, with a phase or attempt that the next batch will carry."""
        self.durable = position
        """The committed position."""
        self.settings = settings or AlignmentSettings()
        self._latest_only = latest_only
        self._marks_keys = marks_keys
        self.caught_up = False
        """Whether all that the log held when the stream was opened has been read."""
        self._effects: list[Effect] = []
        self._readability = Readability()
        self._refusal = ""
        """See `AlignmentStatus.refusal`."""
        self._unreadable_noted = 0
        """Of the delivery that is being committed."""
        self._progress = PartitionProgress(stream, self.settings)
        self._continuity = ContinuityCheck()
        self._gaps = GapDetector()
        self._doubtful: RecordHeader | None = None
        """The record that the probe is about; None: the stream is silent."""
        self._suggests_restart = False
        """Whether something suggests that the provider was restarted since the last connection that
        was proven to go on.
        """
        self._second_connection_refused = False
        self._called_by_gap = False
        self._deviations: dict[str, int] = {}
        """Deviations that the next batch tells."""
        self._left_us = 0
        """When the connection before ended."""
        self._resume_point = ResumePoint("")
        self._opened_us = 0
        self._clock_error_us = 0
        self._connected = False
        self.realign_reason = ""
        self._new_log = False
        self.lag = LagMonitor(stream, position.watermark_us, self.settings)
        self._estimate_requested = False
        self._held = ""
        """The text of what a held sweep would remove."""
        self._held_empty = False
        """Whether it is held because no stream of the provider has anything (A19)."""
        self._missing = ""
        """What a gap that was found last has left out."""
        self._estimate_us = 0
        """When the sweep was found to be due."""
        self._empty_confirmed = False
        self._stated_elsewhere_us = 0
        self._pending_commit = False
        """Whether the phase moved since the last commit, and no batch has carried it yet."""

    @property
    def has_pending_commit(self) -> bool:
        """Whether a `tick` would have something to commit at once."""
        return self._pending_commit or self.position.phase is Phase.SWEEPING

    def reconfigure(self, settings: AlignmentSettings) -> None:
        """Take over changed settings: decisions from now on are made by them."""
        self.settings = self.lag.settings = settings

    def status(self) -> AlignmentStatus:
        """How far it has come; changes nothing."""
        durable, held = self.durable, Phase.SWEEP_HELD
        undecided = self.position.phase is held and not self.realign_reason
        return AlignmentStatus(
            phase=durable.phase,
            attempt=durable.attempt,
            unproven=self.position.unproven,
            caught_up=self.caught_up,
            unreadable=durable.unreadable,
            refused=self._readability.refused,
            readable=bool(self._readability.readable),
            refusal=self._refusal,
            sweep_held=undecided and durable.phase is held,
            read_delay_s=self.lag.read_delay_s,
            fidelity=Fidelity.LOST if durable.phase is Phase.LOST else self.lag.fidelity,
        )

    @property
    def is_proven(self) -> bool:
        """Whether nothing that suggests a restart stands against what is committed."""
        return not self._suggests_restart

    def effects(self) -> list[Effect]:
        """Take the effects that the driver must carry out now, in order."""
        effects, self._effects = self._effects, []
        return effects

    # -- opening and closing ---------------------------------------------------------------------

    def start(self, now_us: int) -> str | Start:
        """Where to open the stream: after our token, or from its start for an attempt."""
        self._resume_point = resume_point(
            self.stream,
            self.position,
            watermark_us=self.lag.watermark_us,
            now_us=now_us,
            realign_reason=self.realign_reason,
            new_log=self._new_log,
            # Before its first connection, a process has seen no sign of what happened.
            suggests_restart=self._suggests_restart or not self._left_us,
        )
        return self._resume_point.start

    def opened(self, now_us: int, clock_error_us: int = 0, *, left_us: int | None = None) -> None:
        """The stream is open where `start` returned. If that is its start, a new attempt begins;
        but not where nothing was ever read, and a log that is silent still would prove that nothing
        was missed.

        All times are the provider's, which may differ by `clock_error_us` (`Feed.clock_error_us`).
        `left_us`: when the connection before ended; None: there was none.
        """
        self._connected = True
        self._readability.opened()
        self._clock_error_us = clock_error_us
        self._left_us = now_us if left_us is None else left_us
        resumed = not isinstance(self._resume_point.start, Start)
        self.lag.opened(now_us)
        if self._resume_point.was_silent:
            self._follow_from(now_us)
            self._continuity.opened(self.position, resumed=False)
            if self.realign_reason:
                self._effects.append(Reopen(self.realign_reason))
            return
        if resumed:
            self._follow_from(now_us)
            self._continuity.opened(
                self.position,
                resumed=True,
                gapless=is_gapless(self.stream)
                and self._gaps.adjoins
                and not is_sparse(self.position.continuity),
                snapshot=self._may_start_with_snapshot,
                suggests_restart=self._suggests_restart,
            )
            if self._second_connection_refused:
                self._remember_refusal()
            if self.realign_reason:
                self._effects.append(Reopen(self.realign_reason))
            elif self.position.phase is Phase.SWEEP_HELD:
                # The guard may have been set anew since it held the sweep.
                self._effects.append(EstimateSweep(self.position.attempt))
            return
        self._begin_attempt(now_us, self._resume_point.reason, new_log=self._resume_point.new_log)
        self._continuity.opened(self.position, resumed=False)
        if self._second_connection_refused:
            self._remember_refusal()
        if self._baseline:
            self._effects.append(ReadBaseline())

    @property
    def _baseline(self) -> bool:
        return self.stream.mode is Mode.BASELINE

    @property
    def compares_baseline(self) -> bool:
        """Whether records are compared with the baseline by their times, until the sweep (A14)."""
        return self._baseline and not self.position.opened_at_newest

    def _young_us(self, now_us: int) -> int | None:
        """The time since which nothing has left the log between its ends; None: at any time."""
        if is_gapless(self.stream):
            return None
        delay_s = self.stream.compaction_delay_s
        if self._may_start_with_snapshot or delay_s is None:
            return _NEVER_US
        return now_us - int(delay_s * _US) + self._clock_error_us

    @property
    def _may_start_with_snapshot(self) -> bool:
        return self.stream.may_start_with_snapshot and not self._baseline

    def _follow_from(self, opened_us: int) -> None:
        self._opened_us = opened_us
        self._progress = PartitionProgress(self.stream, self.settings)
        self._progress.opened(self.position, opened_us, self._clock_error_us)

    def _begin_attempt(self, opened_us: int, reason: str, *, new_log: bool = False) -> None:
        """A new attempt, on the stream that was opened at this time."""
        self.position = new_attempt(
            self.stream,
            self.position,
            new_log=new_log,
            by_gap=self._called_by_gap,
            at_oldest=self._resume_point.start is Start.OLDEST,
            now_us=opened_us,
        )
        self._called_by_gap = self._suggests_restart = self._held_empty = False
        self._pending_commit = True
        self._readability.attempt_begun()
        self.lag.watermark_us = self.position.watermark_us
        self.realign_reason = ""
        self._new_log = False
        self._follow_from(opened_us)
        self._notice(NoticeKind.ATTEMPT, f"attempt {self.position.attempt}: {reason}")

    def closed(self) -> None:
        """The connection is gone. An open attempt goes on after the next opening (A7).

        A phase that no commit has carried yet is forgotten, and is decided again.
        """
        self._connected = self.caught_up = False
        self._refusal = ""
        self._estimate_requested = False
        # An effect of this connection must not be carried out on the next one.
        self._effects = [effect for effect in self._effects if isinstance(effect, Notice)]
        if self.position.attempt_started_at_us != self.durable.attempt_started_at_us:
            # The attempt was never made durable: its reason is kept for the next opening.
            self.realign_reason = self.realign_reason or self._resume_point.reason
            self._new_log = self._new_log or self._resume_point.new_log
        self.position = self.durable
        self._pending_commit = False

    def token_refused(self) -> None:
        """The provider will not open the stream where we asked: the next opening is from the start
        instead of our token, at the oldest record instead of the newest (TR-548 5.10.1).
        """
        if self._resume_point.start is Start.LATEST:
            self.stream = msgspec.structs.replace(self.stream, latest_refused=True)
        else:
            self.realign_reason = "the provider refused our token"

    def realign(self, reason: str) -> None:
        """The client requires realignment (ST-0.9, ST-2.2 step 2): open again, from the start."""
        self.realign_reason = reason
        if self._connected:
            self._effects.append(Reopen(reason))

    def restart_suggested(self) -> None:
        """Something suggests that the provider was restarted since the last connection: it refused
        us, answered with 5xx or 404, or closed the connection as one does who goes away (A2).
        """
        self._suggests_restart = True

    def second_connection_refused(self) -> None:
        """The provider allows one connection to the stream only: it has closed the first one for a
        probe. No probe is made any more (A2).
        """
        self._second_connection_refused = True

    def _remember_refusal(self) -> None:
        """It is kept until it is durable."""
        if not self.position.continuity.second_connection_refused:
            self._tell("second-connection-refused")
            self._set_continuity(second_connection_refused=True)

    def listened(self, since_us: int, until_us: int) -> None:
        """Silence counts from `since_us`, when we stopped holding the stream back, until
        `until_us`, the last sign of life of the provider.
        """
        self._progress.listened(since_us, until_us)

    # -- records ---------------------------------------------------------------------------------

    def receive(self, chunk: RecordChunk, now_us: int) -> Batch | None:
        """What to commit for a delivery; None when an effect must be carried out first.

        After `ProbeOldest`, the same delivery is given again, also where a batch was returned;
        after `Reopen` without a batch it is dropped: the provider states it again. Where the feed
        asks for a realignment (`RecordChunk.realign`), the batch is committed and the stream is
        opened again after it.
        """
        records = chunk.records
        deviations: dict[str, int] = {}
        if self._breaks_silence(chunk):
            self.realign(NEVER_READ)
            return None
        if records:
            sifted = self._sifted(records, len(chunk.unreadable), now_us)
            if sifted is None:
                return self._doubt_batch()
            records = sifted
        if records and self.position.phase is Phase.SWEEP_HELD and self._log_was_empty:
            self._held_empty = False
            self._move(AlignmentEvent.LOG_FILLED)
        offsets = dict(self.position.offsets)
        records = self._progress.follow(records, offsets, self.position, deviations, now_us)
        if self._is_broken_off(records, len(chunk.unreadable), offsets, now_us):
            return None
        if self._lost(now_us, self._progress.oldest_us if records else now_us):
            return None
        if records:
            self._look_for_gaps(records, len(chunk.unreadable), now_us)
        else:
            self._gaps.add_unreadable(len(chunk.unreadable))
        in_order = self.position.phase is Phase.ALIGNED and self._progress.goes_back
        position = advanced_position(
            self.position,
            self._progress,
            records,
            offsets,
            watermark_us=self.lag.watermark_us,
            now_us=now_us,
            # A stream that is never resumed delivers nothing again. One token shows that a message
            # goes on in the next chunk.
            recent_records=RECENT_RECORDS if self.stream.resumable else 1,
        )
        position = without_known(position, records)
        if records:
            self.lag.read(records[-1].appended_at_us, now_us, self.durable.phase)
        deviations |= self._deviations
        self._deviations = {}
        position = self._count_unreadable(position, chunk, now_us)
        content = partial(
            decode_chunk,
            self.stream,
            chunk,
            records,
            deviations,
            latest_only=self._latest_only,
            in_order=in_order,
        )
        lineage = -position.ordinal if in_order else None
        batch = batch_at(self.stream, self.settings, position, content, lineage=lineage)
        self._consider(position, now_us)
        if chunk.realign:
            self.realign(chunk.realign)
        elif chunk.unreadable and (broken := self._readability.broken()):
            self._end_unreadable(broken[0], from_oldest=broken[1])
        elif not self._realign_for_missing(position, now_us):
            self._realign_if_recovered(now_us)
        return batch

    def _breaks_silence(self, chunk: RecordChunk) -> bool:
        """Whether something came of a log of which nothing was ever read, and which had to be
        silent for that. It may be older than the baseline, or what was missed: nothing tells which.
        """
        came = bool(chunk.records or chunk.unreadable)
        return came and self._resume_point.was_silent and not self.caught_up

    def _is_broken_off(
        self,
        records: Sequence[RecordHeader],
        unreadable: int,
        offsets: dict[str, int],
        now_us: int,
    ) -> bool:
        """Whether these records do not go on from those before them: the stream is opened again."""
        if self._progress.begins_anew:
            # A snapshot does not state what has ended before it (A21).
            self.realign("the provider has begun the stream anew on its connection")
            return True
        unreadable += self._readability.refused
        if self._continuity.has_gap(records, self.position, offsets, unreadable):
            self._on_continuity(Continuity.GAP, records[0], now_us)
            return True
        return False

    def _count_unreadable(self, position: Position, chunk: RecordChunk, now_us: int) -> Position:
        """Note what of a delivery could be read; hold what an attempt cannot prove absent (A17).

        Called where the delivery is used: one that an effect holds up is given again.
        """
        if chunk.unreadable and not chunk.records:
            # What cannot be read breaks a silence as well: the stream is replaying.
            self._progress.silence_from(now_us)
        self._unreadable_noted = len(chunk.unreadable)
        if unreadable := self._readability.received(len(chunk.records), chunk.unreadable):
            position = msgspec.structs.replace(
                position, unreadable=position.unreadable + unreadable
            )
        if chunk.unreadable and not self._baseline:
            position = with_holds(position, chunk.unreadable, marks_keys=self._marks_keys)
        return position

    def _sifted(
        self, records: Sequence[RecordHeader], unreadable: int, now_us: int
    ) -> Sequence[RecordHeader] | None:
        """The records to go on with; None: they cannot be used now (A2, A21)."""
        position = self.position
        if not self._baseline and position.phase is Phase.ALIGNING:
            other = at_place_of_another(records, position.barrier)
            if other is not None:
                self._on_continuity(Continuity.NEW_LOG, other, now_us)
                return None
        if self._continuity.settled:
            if position.phase is not Phase.ALIGNED:
                return records
            again = self._continuity.came_again(records, position)
            if again is None:
                return records
            found_log = Continuity.NEW_LOG if is_new_log(again, position) else Continuity.DOUBTFUL
            self._on_continuity(found_log, again, now_us)
            return None
        told = is_sparse(position.continuity) or not self._gaps.adjoins
        young_us = _NEVER_US if told else self._young_us(now_us)
        unreadable += self._readability.refused
        kept, found = self._continuity.sift(
            records, position, young_us=young_us, unreadable=unreadable
        )
        if found is None:
            self._suggests_restart = False
            self._proven()
        elif found.continuity is not Continuity.REDELIVERED:
            self._on_continuity(found.continuity, found.record, now_us)
            return None
        else:
            self._notice(NoticeKind.REDELIVERED, "the provider delivers recent records again")
        if len(kept) < len(records):
            # What is delivered again breaks a silence as well: the stream replays up to here.
            self._progress.silence_from(now_us)
        return kept

    def _proven(self) -> None:
        """The stream goes on where it was left."""
        if self.position.phase is Phase.CONFIRMING:
            in_attempt = self.position.unaligned_attempts > 0
            self._move(AlignmentEvent.PROVEN_IN_ATTEMPT if in_attempt else AlignmentEvent.PROVEN)

    def _look_for_gaps(self, records: Sequence[RecordHeader], unreadable: int, now_us: int) -> None:
        """Count a gap between the records that were read: it is durable with them (A18)."""
        missing = self._gaps.missing(
            records, unreadable, self.position, young_us=self._young_us(now_us)
        )
        if missing:
            self._missing = missing
            self._set_continuity(gaps=self.position.continuity.gaps + 1)

    def _realign_for_missing(self, position: Position, now_us: int) -> bool:
        """Realign where records are missing (A18), or the entity that a CHANGE named."""
        least_s = self.settings.rebaseline_min_s
        if gap_due(position, least_s, now_us):
            self.realign(self._missing or "records are missing")
            return True
        if realignment_due(position, least_s, now_us):
            self.realign("a CHANGE named an entity that is not stored")
            return True
        return False

    def probed(self, oldest: RecordHeader | None) -> None:
        """Answer `ProbeOldest`: the record that came first, or None where none came. The delivery
        that was in doubt is then given to `receive` again.
        """
        doubtful, position = self._doubtful, self.position
        if proves_continued(oldest, doubtful, position):
            assert oldest is not None
            self._continuity.prove(oldest, doubtful)
            self._suggests_restart = False
            self._proven()
            return
        new_log = oldest is not None and is_new_log(oldest, position)
        if oldest is None:
            shown = "the log is empty" if doubtful is None else "its log holds nothing before it"
        elif doubtful is not None and same_record(oldest, doubtful):
            shown = "it began at the oldest record of its log"
            if self._can_take_over(doubtful):
                self._begin_attempt(self._opened_us, f"restarted: {shown}", new_log=new_log)
                self._continuity.opened(self.position, resumed=False)
                return
        else:
            shown = "its log does not reach back to what was read"
        self._new_log = self._new_log or new_log
        self.realign(f"restarted: {shown}")

    def probe_failed(self, *, refused: bool) -> None:
        """Answer `ProbeOldest` where no second connection could be had. The doubt itself opens an
        attempt; `refused`: and no probe is made any more.
        """
        if refused:
            self._second_connection_refused = True
        self.realign("a second connection would have to show whether the stream was continued")

    def _can_take_over(self, first: RecordHeader) -> bool:
        """Whether the stream is read as the attempt from where it was opened, at this record: all
        that is stored is of its partition, and nothing was read.
        """
        continuity = self._continuity
        return not self._baseline and continuity.begins_all(first) and continuity.unproven

    def baseline_page(self, page: list[Record] | RecordChunk) -> Batch:
        """What to commit for a page of current state, with what of it cannot be read (A17).

        All that the stream brings beats it where the stream was opened at its newest record: no
        time is compared (A14). Where old records are read again, their times decide until the
        sweep.
        """
        lineage = _NO_LOG if self.position.opened_at_newest else None
        chunk = page if isinstance(page, RecordChunk) else RecordChunk(page)
        position = with_holds(self._advance(), chunk.unreadable, of_baseline=True)
        position = without_known(position, chunk.records)
        content = partial(decode_chunk, self.stream, chunk, chunk.records, {}, latest_only=False)
        return batch_at(self.stream, self.settings, position, content, lineage=lineage)

    def baseline_read(self, now_us: int) -> None:
        """Current state was read whole and committed: what was held is replayed next."""
        self._move(AlignmentEvent.BASELINE_READ)
        self._progress.silence_from(now_us)

    def sweep_estimated(self, estimate: SweepEstimate) -> None:
        """Decide about the sweep that is due: begin it, or hold it: it would remove too much (A6),
        or all, because the log is empty, and no other stream has content (A19).
        """
        self._estimate_requested = False
        if estimate.unmarked and self._may_be_another_log:
            self._new_log = True
            self.realign("its log ends before what was read of it once: it may be another one")
            return
        estimate = self._with_holds(estimate)
        share, least = self.settings.sweep_guard_share, self.settings.sweep_guard_records
        empty = self._log_was_empty and estimate.unmarked > 0
        self._held_empty = empty and not self._others_stated
        guarded = estimate.unmarked > least and estimate.unmarked > estimate.total * share
        if guarded or self._held_empty:
            self._held = f"{estimate.unmarked:,} of {estimate.total:,} entities"
            self._move(AlignmentEvent.SWEEP_HELD)
        else:
            self._move(AlignmentEvent.SWEEP_BEGUN)

    @property
    def _may_be_another_log(self) -> bool:
        """Whether the attempt has read a log to its end that is shorter than the one that its
        records were compared with. An end that has left the log may explain that. So may a log that
        was rebuilt while a clock went back: then A3 has taken what is live for outdated.
        """
        read = self.position.attempt_records > 0 and not self._baseline
        return read and ends_before(self.position, self.position.barrier)

    @property
    def _others_stated(self) -> bool:
        """Whether another stream of the provider has stated something since the last connection."""
        return self._stated_elsewhere_us > self._left_us

    def _with_holds(self, estimate: SweepEstimate) -> SweepEstimate:
        """Settle what the attempt cannot prove absent (A17, A19); the estimate without it."""
        holds = held_records(self.position.holds, estimate.accepted)
        readable = None
        if self._baseline:
            readable = self.stream.readable
            verdict = judge_empty(
                self.position.empty,
                estimate,
                self.stream,
                self.settings,
                now_us=self._estimate_us,
                stated_elsewhere_us=self._stated_elsewhere_us,
                confirmed=self._empty_confirmed,
            )
            self._empty_confirmed = False
            holds = without_empty(holds) + verdict.holds
            self._set(empty=verdict.readings)
            for notice in empty_notices(verdict, estimate, self.settings):
                self._notice(NoticeKind.UNPROVEN, notice)
        if holds != self.position.holds:
            self._set(holds=holds)
        return unguarded(estimate, holds, readable)

    @property
    def awaits_confirmation(self) -> bool:
        """Whether classes are held of which the provider states nothing: an operator may confirm
        that they are gone (A19).
        """
        return self.position.phase is Phase.ALIGNED and bool(self.position.empty.since_us)

    def confirm_empty(self) -> None:
        """An operator says that what the provider states nothing of is gone (A19): it is read once
        more, and then believed.
        """
        self._empty_confirmed = True
        self.realign("an operator confirms that what is not stated is gone")

    def proven_singly(self, proofs: Sequence[EntityProof]) -> Batch | None:
        """What requests for single entities have proven (A17), to be committed; None where an
        attempt has begun meanwhile, which proves more.
        """
        if not self._connected or self.position.phase is not Phase.ALIGNED:
            return None
        batch = self._batch(self._advance())
        batch.proofs = proofs
        return batch

    def release_sweep(self) -> None:
        """Let a held sweep go on."""
        self._held_empty = False
        self._move(AlignmentEvent.SWEEP_BEGUN)

    def committed(self, batch: Batch, result: CommitResult) -> None:
        """The batch is durable, and so is its position (A1). A phase that moved meanwhile is kept
        for the next one.
        """
        phase = self.position.phase
        if batch.position.phase is not self.durable.phase:
            self._emit_phase(batch.position)
        position = batch.position
        if result.unresolved_keys:
            # Tombstones under unknown keys may be of entities that only a GET has shown. The sink
            # has stored the flag with the batch.
            position = msgspec.structs.replace(position, baseline_pending=True)
        position = changes_met(position, result.unknown_entities)
        if not self._marks_keys and not self._baseline and batch.unreadable:
            # Bodies are opened with the commit.
            position = with_holds(position, batch.unreadable)
        self.position = self.durable = position
        if position.continuity.second_connection_refused:
            self._second_connection_refused = False
        self._pending_commit = False
        if absent := absent_of(position, result.unknown_entities):
            self._tell(CHANGE_WITHOUT_ENTITY, absent)
        if phase is not batch.position.phase:
            self._set(phase=phase)
        if (late := len(batch.unreadable) - self._unreadable_noted) > 0:
            # Bodies that nobody opened before the commit did.
            self._set(unreadable=position.unreadable + late)
        self._unreadable_noted = 0
        self.lag.raise_watermark(batch.position.watermark_us)
        if result.kept:
            self._set(unproven=max(0, self.position.unproven + result.kept))
        if batch.sweep is not None:
            removed = self.position.sweep_removed + result.swept
            self._set(sweep_cursor=result.sweep_cursor, sweep_removed=removed)
            if result.sweep_done:
                self._end_attempt(found_gone=removed > 0)

    def _end_attempt(self, *, found_gone: bool) -> None:
        """All is swept: what the attempt has not stated is not there."""
        self._move(AlignmentEvent.SWEPT)
        unknown, absent = after_alignment(self.position.unknown)
        self._set(unaligned_attempts=0, unknown=unknown)
        if absent:
            self._tell(CHANGE_WITHOUT_ENTITY, absent)
        if self.position.continuity.called_by_gap:
            self._learn_from_gap(found=found_gone)

    def _learn_from_gap(self, *, found: bool) -> None:
        """An attempt that a gap has called for is over: offsets may turn out to be sparse (A18)."""
        state = self.position.continuity
        fruitless = 0 if found else state.fruitless_gaps + 1
        self._set_continuity(called_by_gap=False, fruitless_gaps=fruitless)
        if is_sparse(self.position.continuity) and not is_sparse(state):
            self._tell("offsets-sparse")

    def tick(
        self,
        now_us: int,
        state: StreamState = StreamState.UNKNOWN,
        *,
        stated_elsewhere_us: int = 0,
    ) -> Batch | None:
        """Time has passed: a sweep step, a phase or a heartbeat may be due for a commit.

        `stated_elsewhere_us`: when another stream of the provider stated something last (A19).
        """
        if not self._connected or self.position.phase is Phase.BASELINING:
            return None
        self._stated_elsewhere_us = stated_elsewhere_us
        self._progress.attested = state is StreamState.ACTIVE
        if state in (StreamState.PAUSED, StreamState.ALIGNING):
            # A silence that the provider announces proves nothing about the head of the log: it
            # is still ALIGNING (ST-1.1), or PAUSED to recover from a loss of its own (ST-1.2).
            self._progress.silence_from(now_us)
        elif self._lost(now_us, now_us):
            return None
        elif self._readability.nothing_readable:
            # What was refused is missing: its end is no silence.
            pass
        elif not self._pending_commit and self._doubts_silence(now_us):
            self._on_continuity(Continuity.DOUBTFUL, None, now_us)
            return self._doubt_batch()
        elif self.position.phase is not Phase.ALIGNING and self._progress.quiet(now_us):
            until_us = self._progress.heard_until(now_us) - int(self.settings.quiet_s * _US)
            self.lag.silent(until_us, self.position.phase)
            self._realign_if_recovered(now_us)
        if self._realign_if_due(now_us):
            return None
        held = self._held_empty and self.position.phase is Phase.SWEEP_HELD
        if held and self._others_stated and not self._estimate_requested:
            self._estimate_requested = True
            self._effects.append(EstimateSweep(self.position.attempt))
        self._consider(self.position, now_us)
        if self.position.phase not in (Phase.ALIGNING, Phase.CONFIRMING, Phase.LOST):
            # What an attempt has read counts as known once the attempt has seen enough.
            self.lag.raise_watermark(min(self.position.appended_at_us, now_us))
        if self.has_pending_commit or self.lag.heartbeat_due(self.position):
            return self._batch(self._advance())
        return None

    def _realign_if_due(self, now_us: int) -> bool:
        """Realign where a baseline or a gap calls for it. True: the stream is opened again."""
        if baseline_due(self.position, self.settings.rebaseline_min_s, now_us):
            self.realign("a tombstone named an entity that only the baseline knew")
            return True
        if reread_due(self.position, now_us):
            self.realign("the provider stated nothing of what is stored: it is read again")
            return True
        return not self._pending_commit and self._realign_for_missing(self.position, now_us)

    def _on_continuity(
        self, continuity: Continuity, record: RecordHeader | None, now_us: int
    ) -> None:
        """React to what was found at a record, or in silence (A2): the delivery cannot be used."""
        if continuity is not Continuity.DOUBTFUL:
            self._new_log = continuity is Continuity.NEW_LOG
            self._called_by_gap = continuity is Continuity.GAP
            self.realign(f"the first record after the reconnect shows it: {continuity}")
            return
        state = self.position.continuity
        in_attempt = self.position.unaligned_attempts > 0
        # A probe costs less than to begin an attempt anew.
        soon_us = 0 if in_attempt else int(self.settings.probe_min_s * _US)
        if self._may_start_with_snapshot or state.second_connection_refused:
            self.realign(f"{continuity}, and no second connection can tell")
        elif self.position.phase is Phase.LOST:
            self.realign(f"it was lost, and {continuity}")
        elif 0 <= now_us - state.probed_at_us < soon_us:
            self.realign(f"{continuity}, again")
        else:
            self._doubtful = record
            self._set_continuity(probed_at_us=now_us)
            self._move(AlignmentEvent.DOUBTED)
            self._effects.append(ProbeOldest(None if record is None else partition_of(record)))

    def _doubt_batch(self) -> Batch | None:
        """What makes a doubt durable; None where there is none."""
        if self.position.phase is not Phase.CONFIRMING or not self._pending_commit:
            return None
        return self._batch(self._advance())

    def _doubts_silence(self, now_us: int) -> bool:
        """Whether it is in doubt that a stream which stays silent was continued (A2)."""
        if not self._continuity.unproven or self.position.phase not in _DOUBTS_SILENCE:
            return False
        if not self._progress.quiet(now_us):
            return False
        if is_compacted(self.stream):
            return True
        if self._may_start_with_snapshot and self._suggests_restart:
            # It would have begun with a snapshot, unless there is nothing any more.
            return True
        self._proven()
        return False

    def _lost(self, now_us: int, oldest_us: int) -> bool:
        """Rule A8: beyond the tombstone retention, as in an extreme storm with a very slow client
        (ST-0.6), realign without waiting to be dropped; where
        that did not help, say that the stream is lost. True: the stream is opened again.
        """
        reason = self.lag.lost(self.position, oldest_us, now_us)
        if not reason or self.position.phase is Phase.LOST:
            return False
        if self.lag.may_realign(now_us):
            self._notice(NoticeKind.LOST, reason)
            self.realign(reason)
            return True
        self._notice(NoticeKind.LOST, f"{reason}; realigning did not help")
        self._move(AlignmentEvent.LOST)
        # From here on nothing is proven: what is stored stands as of the last commit.
        self.lag.watermark_us = self.position.watermark_us
        return False

    def _end_unreadable(self, reason: str, *, from_oldest: bool) -> None:
        """So much cannot be read that the connection may be at fault."""
        self._notice(NoticeKind.UNREADABLE, reason)
        if from_oldest:
            self.realign(reason)
        else:
            self._effects.append(Reopen(reason))

    def _realign_if_recovered(self, now_us: int) -> None:
        if self.durable.phase is Phase.LOST and self.lag.recovered(now_us):
            self.realign("it was lost, and is read in time again")

    def _batch(self, position: Position) -> Batch:
        """A batch without records."""
        content = None
        if self._deviations:
            told, self._deviations = self._deviations, {}
            content = partial(DecodedRecords, [], [], told)
        return batch_at(self.stream, self.settings, position, content)

    def _tell(self, deviation: str, times: int = 1) -> None:
        self._deviations[deviation] = times
        self._pending_commit = True

    def _set_continuity(self, **changes: Any) -> None:
        self._set(continuity=msgspec.structs.replace(self.position.continuity, **changes))

    @property
    def _log_was_empty(self) -> bool:
        """Whether the attempt has found nothing in the log."""
        return not self._baseline and not self.position.attempt_records

    def _advance(self) -> Position:
        return advanced_position(self.position, self._progress, watermark_us=self.lag.watermark_us)

    def _consider(self, position: Position, now_us: int) -> None:
        """Whether the head of the log was reached, and whether a sweep is due."""
        if self._readability.nothing_readable:
            # Whatever the log holds, nothing of it is known: neither its end nor what is gone.
            if not self._refusal and self._progress.caught_up(now_us):
                refused, reason = self._readability.refused, self._readability.reason
                self._refusal = f"none of {refused:,} records could be read: {reason}"
                self._notice(NoticeKind.UNREADABLE, self._refusal)
            return
        self._refusal = ""
        if not self.caught_up and self._progress.caught_up(now_us):
            self.caught_up = True
            self._readability.caught_up()
            self._notice(NoticeKind.CAUGHT_UP, "all that was in the log at the opening is read")
        if position.phase is not Phase.ALIGNING or self._estimate_requested:
            return
        if self._progress.sweep_due(position, now_us):
            self._estimate_requested = True
            self._estimate_us = now_us
            self._effects.append(EstimateSweep(position.attempt))

    def _emit_phase(self, position: Position) -> None:
        """Emit a phase once it is durable, so that a reader of the store finds it."""
        if position.phase is Phase.CONFIRMING:
            self._notice(NoticeKind.CONFIRMING, f"{Continuity.DOUBTFUL}: a probe will show it")
        elif self.durable.phase is Phase.CONFIRMING:
            goes_on = position.attempt == self.durable.attempt and not self.realign_reason
            if goes_on and position.phase in (Phase.ALIGNED, Phase.ALIGNING):
                self._notice(NoticeKind.CONTINUED, "the stream goes on where it was left")
        elif position.phase is Phase.ALIGNED:
            removed = position.sweep_removed
            entities = "entity" if removed == 1 else "entities"
            swept = f"; its sweep removed {removed:,} {entities}" if removed else ""
            kept = f"; {position.unproven:,} are unproven" if position.unproven else ""
            self._notice(NoticeKind.ALIGNED, f"aligned by attempt {position.attempt}{swept}{kept}")
            for text in unproven_texts(position):
                self._notice(NoticeKind.UNPROVEN, text)
            if self.stream.unprovable:
                classes = ", ".join(sorted(self.stream.unprovable))
                self._notice(
                    NoticeKind.UNPROVEN,
                    f"of {classes} only what the log still held is known: no resource shows more",
                )
        elif position.phase is Phase.SWEEP_HELD:
            if self._held_empty:
                self._notice(
                    NoticeKind.SWEEP_HELD,
                    "the log is empty, and so is what the provider states beside it: nothing is"
                    " removed",
                )
                return
            self._notice(
                NoticeKind.SWEEP_HELD,
                f"the sweep of attempt {position.attempt} would remove {self._held};"
                " `instep audit` compares them with the provider, `instep sweep release` lets it"
                " go on",
            )

    def _notice(self, kind: NoticeKind, text: str) -> None:
        self._effects.append(Notice(kind, text))

    def _move(self, event: AlignmentEvent) -> None:
        self._set(phase=phase_after(self.position.phase, event))

    def _set(self, **changes: Any) -> None:
        self.position = msgspec.structs.replace(self.position, **changes)
        self._pending_commit = True
