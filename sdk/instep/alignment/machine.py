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
costs a reading of the log, and can never sweep what exists. One case needs no second connection: a
restarted stream that is proven to begin at its oldest record (`continuity`) is taken over.

The driver's part: call `start` and open the stream there; call `opened`; for each delivery call
`receive`, commit the batch that it returns, call `committed`; call `tick` from time to time; before
`receive` and `tick` call `listened` where silence does not always count; after each call carry out
`effects`; at the end call `closed`. `now_us` is the provider's clock.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from instep.alignment.commit_batches import advanced_position, batch_at, decode_chunk
from instep.alignment.continuity import Continuity, ContinuityCheck, partition_of
from instep.alignment.effects import (
    Effect,
    EstimateSweep,
    Notice,
    NoticeKind,
    ProbeOlderEntity,
    ReadBaseline,
    Reopen,
)
from instep.alignment.lag import Fidelity, LagMonitor
from instep.alignment.readability import Readability
from instep.alignment.resume import (
    ResumePoint,
    baseline_due,
    new_attempt,
    resume_point,
)
from instep.alignment.settings import AlignmentSettings
from instep.alignment.sweep_trigger import PartitionProgress
from instep.alignment.transitions import AlignmentEvent, phase_after
from instep.model.batches import Batch, CommitResult
from instep.model.position import RECENT_RECORDS, Phase, Position
from instep.model.records import Record, RecordChunk, RecordHeader
from instep.model.streams import Mode, Start, StreamInfo, StreamState, SweepEstimate

__all__ = ["Alignment", "AlignmentStatus"]

_US = 1_000_000
_NO_LOG = 0
"""The lineage of rows that are compared with no record."""


class AlignmentStatus(msgspec.Struct, frozen=True):
    """How far an alignment has come, as its driver shows it."""

    phase: Phase = Phase.UNALIGNED
    """As durable, and so is `attempt`."""
    attempt: int = 0
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
    ) -> None:
        """`latest_only`: see `Sink.latest_only`."""
        self.stream = stream
        self.position = position
        """The committed position, with a phase or attempt that the next batch will carry."""
        self.durable = position
        """The committed position."""
        self.settings = settings or AlignmentSettings()
        self._latest_only = latest_only
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
        self._pending_commit = False
        """Whether the phase moved since the last commit, and no batch has carried it yet."""

    @property
    def has_pending_commit(self) -> bool:
        """Whether a `tick` would have something to commit at once."""
        return self._pending_commit or self.position.phase is Phase.SWEEPING

    def status(self) -> AlignmentStatus:
        """How far it has come; changes nothing."""
        durable, held = self.durable, Phase.SWEEP_HELD
        undecided = self.position.phase is held and not self.realign_reason
        return AlignmentStatus(
            phase=durable.phase,
            attempt=durable.attempt,
            caught_up=self.caught_up,
            unreadable=durable.unreadable,
            refused=self._readability.refused,
            readable=bool(self._readability.readable),
            refusal=self._refusal,
            sweep_held=undecided and durable.phase is held,
            read_delay_s=self.lag.read_delay_s,
            fidelity=Fidelity.LOST if durable.phase is Phase.LOST else self.lag.fidelity,
        )

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
        )
        return self._resume_point.start

    def opened(self, now_us: int, clock_error_us: int = 0) -> None:
        """The stream is open where `start` returned. If that is its start, a new attempt begins.

        All times are the provider's, which may differ by `clock_error_us` (`Feed.clock_error_us`).
        """
        self._connected = True
        self._readability.opened()
        self._clock_error_us = clock_error_us
        resumed = not isinstance(self._resume_point.start, Start)
        self.lag.opened(now_us)
        if resumed:
            self._follow_from(now_us)
            self._continuity.opened(
                self.position,
                resumed=True,
                gapless=self._gapless,
                provable=self._provable,
                snapshot=self.stream.may_start_with_snapshot,
            )
            if self.realign_reason:
                self._effects.append(Reopen(self.realign_reason))
            elif self.position.phase is Phase.SWEEP_HELD:
                # The guard may have been set anew since it held the sweep.
                self._effects.append(EstimateSweep(self.position.attempt))
            return
        self._begin_attempt(now_us, self._resume_point.reason, new_log=self._resume_point.new_log)
        self._continuity.opened(self.position, resumed=False, gapless=self._gapless)
        if self._baseline:
            self._effects.append(ReadBaseline())

    @property
    def _baseline(self) -> bool:
        return self.stream.mode is Mode.BASELINE

    @property
    def compares_baseline(self) -> bool:
        """Whether records are compared with the baseline by their times, until the sweep (A14)."""
        return self._baseline and not self.position.opened_at_newest

    @property
    def _gapless(self) -> bool:
        """Whether the log is never compacted between its ends."""
        return self._baseline and not self.stream.compacts

    @property
    def _provable(self) -> bool:
        # Until an attempt in a new log is aligned, entities of the log before it are stored, whose
        # place in this one is not known.
        one_log = self.position.phase is Phase.ALIGNED or self.position.lineage == 1
        return one_log and not self._baseline and not self.stream.partial_updates

    def _follow_from(self, opened_us: int) -> None:
        self._opened_us = opened_us
        self._progress = PartitionProgress(self.stream, self.settings)
        self._progress.opened(self.position, opened_us, self._clock_error_us)

    def _begin_attempt(self, opened_us: int, reason: str, *, new_log: bool = False) -> None:
        """A new attempt, on the stream that was opened at this time."""
        self.position = new_attempt(self.stream, self.position, new_log=new_log, now_us=opened_us)
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

    def listened(self, since_us: int, until_us: int) -> None:
        """Silence counts from `since_us`, when we stopped holding the stream back, until
        `until_us`, the last sign of life of the provider.
        """
        self._progress.listened(since_us, until_us)

    # -- records ---------------------------------------------------------------------------------

    def receive(self, chunk: RecordChunk, now_us: int) -> Batch | None:
        """What to commit for a delivery; None when an effect must be carried out first.

        After `ProbeOlderEntity` the same delivery is given again; after `Reopen` without a batch it
        is dropped: the provider states it again. Where the feed asks for a realignment
        (`RecordChunk.realign`), the batch is committed and the stream is opened again after it.
        """
        records = chunk.records
        deviations: dict[str, int] = {}
        if chunk.unreadable and not records:
            # What cannot be read breaks a silence as well: the stream is replaying.
            self._progress.silence_from(now_us)
        if records and not self._continuity.settled:
            records, found = self._continuity.sift(chunk.records, self.position)
            if found is not None and found[0] is Continuity.RESTARTED_AT_OLDEST:
                self._begin_attempt(self._opened_us, found[0])
                self._continuity.opened(self.position, resumed=False, gapless=False)
                records, found = self._continuity.sift(chunk.records, self.position)
            if found is not None and not self._on_continuity(*found):
                return None
            if len(records) < len(chunk.records):
                # What is delivered again breaks a silence as well: the stream replays up to here.
                self._progress.silence_from(now_us)
        offsets = dict(self.position.offsets)
        records = self._progress.follow(records, offsets, self.position, deviations, now_us)
        if self._continuity.has_gap(records, self.position, offsets):
            self._on_continuity(Continuity.GAP, records[0])
            return None
        if self._lost(now_us, self._progress.oldest_us if records else now_us):
            return None
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
        if records:
            self.lag.read(records[-1].appended_at_us, now_us, self.durable.phase)
        content = partial(
            decode_chunk, self.stream, chunk, records, deviations, latest_only=self._latest_only
        )
        self._unreadable_noted = len(chunk.unreadable)
        # Counted where the delivery is used: one that an effect holds up is given again.
        if unreadable := self._readability.received(len(chunk.records), chunk.unreadable):
            position = msgspec.structs.replace(
                position, unreadable=position.unreadable + unreadable
            )
        batch = batch_at(self.stream, self.settings, position, content)
        self._consider(position, now_us)
        if chunk.realign:
            self.realign(chunk.realign)
        elif chunk.unreadable and (broken := self._readability.broken()):
            self._end_unreadable(broken[0], from_oldest=broken[1])
        else:
            self._realign_if_recovered(now_us)
        return batch

    def probe_answered(self, partition: str, *, has_older_entity: bool) -> None:
        """Answer `ProbeOlderEntity`; then give the chunk to `receive` again."""
        self._continuity.probe_answered(partition, has_older_entity=has_older_entity)

    def baseline_page(self, rows: list[Record]) -> Batch:
        """What to commit for a page of current state.

        All that the stream brings beats it where the stream was opened at its newest record: no
        time is compared (A14). Where old records are read again, their times decide until the
        sweep.
        """
        lineage = _NO_LOG if self.position.opened_at_newest else None
        content = RecordChunk(rows).decode
        return batch_at(self.stream, self.settings, self._advance(), content, lineage=lineage)

    def baseline_read(self, now_us: int) -> None:
        """Current state was read whole and committed: what was held is replayed next."""
        self._move(AlignmentEvent.BASELINE_READ)
        self._progress.silence_from(now_us)

    def sweep_estimated(self, estimate: SweepEstimate) -> None:
        """Decide about the sweep that is due: begin it, or hold it (A6)."""
        self._estimate_requested = False
        share, least = self.settings.sweep_guard_share, self.settings.sweep_guard_records
        if estimate.unmarked > least and estimate.unmarked > estimate.total * share:
            self._held = f"{estimate.unmarked:,} of {estimate.total:,} entities"
            self._move(AlignmentEvent.SWEEP_HELD)
        else:
            self._move(AlignmentEvent.SWEEP_BEGUN)

    def release_sweep(self) -> None:
        """Let a held sweep go on."""
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
        self.position = self.durable = position
        self._pending_commit = False
        if phase is not batch.position.phase:
            self._set(phase=phase)
        if (late := len(batch.unreadable) - self._unreadable_noted) > 0:
            # Bodies that nobody opened before the commit did.
            self._set(unreadable=position.unreadable + late)
        self._unreadable_noted = 0
        self.lag.raise_watermark(batch.position.watermark_us)
        if batch.sweep is not None:
            removed = self.position.sweep_removed + result.swept
            self._set(sweep_cursor=result.sweep_cursor, sweep_removed=removed)
            if result.sweep_done:
                self._move(AlignmentEvent.SWEPT)
                self._set(unaligned_attempts=0)

    def tick(self, now_us: int, state: StreamState = StreamState.UNKNOWN) -> Batch | None:
        """Time has passed: a sweep step, a phase or a heartbeat may be due for a commit."""
        if not self._connected or self.position.phase is Phase.BASELINING:
            return None
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
        elif self.position.phase is not Phase.ALIGNING and self._progress.quiet(now_us):
            until_us = self._progress.heard_until(now_us) - int(self.settings.quiet_s * _US)
            self.lag.silent(until_us, self.position.phase)
            self._realign_if_recovered(now_us)
        if baseline_due(self.position, self.settings.rebaseline_min_s, now_us):
            self.realign("a tombstone named an entity that only the baseline knew")
            return None
        self._consider(self.position, now_us)
        if self.position.phase not in (Phase.ALIGNING, Phase.LOST):
            # What an attempt has read counts as known once the attempt has seen enough.
            self.lag.raise_watermark(min(self.position.appended_at_us, now_us))
        if self.has_pending_commit or self.lag.heartbeat_due(self.position):
            return batch_at(self.stream, self.settings, self._advance())
        return None

    def _on_continuity(self, continuity: Continuity, record: RecordHeader) -> bool:
        """React to the finding at a first record (A2). False: the delivery cannot be used now."""
        if continuity is Continuity.REDELIVERED:
            self._notice(NoticeKind.REDELIVERED, "the provider delivers recent records again")
            return True
        if continuity is Continuity.UNDECIDED:
            self._effects.append(ProbeOlderEntity(record, partition_of(record)))
        else:
            self._new_log = continuity is Continuity.NEW_LOG
            self.realign(f"the first record after the reconnect shows it: {continuity}")
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
            self._effects.append(EstimateSweep(position.attempt))

    def _emit_phase(self, position: Position) -> None:
        """Emit a phase once it is durable, so that a reader of the store finds it."""
        if position.phase is Phase.ALIGNED:
            removed = position.sweep_removed
            entities = "entity" if removed == 1 else "entities"
            swept = f"; its sweep removed {removed:,} {entities}" if removed else ""
            self._notice(NoticeKind.ALIGNED, f"aligned by attempt {position.attempt}{swept}")
            if self.stream.unprovable:
                classes = ", ".join(sorted(self.stream.unprovable))
                self._notice(
                    NoticeKind.UNPROVEN,
                    f"of {classes} only what the log still held is known: no resource shows more",
                )
        elif position.phase is Phase.SWEEP_HELD:
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
