"""Alignment with a log that has opaque tokens: the decisions, without I/O, clock or randomness.

Two rules hold this file together:

1. What decides about attempts, marks and sweeps is here and in the pure functions that it calls
   (`opening`, `arrival`, `sweep_due`, `transitions`); whoever drives it (`instep.runner`, a
   simulation, a test) only carries out what it returns.
2. It does not know what a provider, a socket or a database is.

Theory of operation. A stream has a `Phase`, kept in its `Position` and so durable.
`transitions.TRANSITIONS` is the whole of it: what is not listed there raises, and changes nothing.

An *attempt* is one reading of everything that exists: the log from its oldest record (`Mode.LOG`),
or current state by GET with the stream held meanwhile (`Mode.BASELINE`). While it is open, the
commit itself marks what is stated with the attempt's number. When it has seen enough, what carries
a lower number is swept, in steps that travel with ordinary batches. Marks are numbers and only
grow: nothing is ever unmarked, and an attempt that was interrupted goes on after its own last
token (A7).

An attempt is opened only by `opened`, on a stream that was really opened from its start. Whatever
calls for one (a provider that restarted us, a lost log, a lag past the tombstone retention, an
operator) only asks for the stream to be opened again, from the start. So a mistaken suspicion
costs a reading of the log, and can never sweep what exists.

The driver's part: ask `start` and open there; `opened`; for each delivery `receive`, commit the
batch that it returns, `committed`; `tick` from time to time; before both say when you `listened`,
if not always; after each call carry out `effects`; `closed`. `now_us` is the provider's clock.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from instep.arrival import Arrival, Arrivals, watched
from instep.batching import advanced, batch_of, opened
from instep.effects import (
    AskHoldsBefore,
    Effect,
    Notice,
    NoticeKind,
    ReadBaseline,
    Reopen,
    TakeCensus,
)
from instep.lateness import Lateness
from instep.opening import Opening, baseline_due, new_attempt, opening
from instep.ports import Census, Mode, Start, StreamInfo
from instep.position import Phase, Position
from instep.records import Batch, CommitResult, Delivery, Record, Statement, StreamState
from instep.settings import AlignmentSettings
from instep.sweep_due import Progress
from instep.transitions import Event, after

__all__ = ["Alignment"]


class Alignment:
    """The alignment of one stream. The module says what it promises and how it is driven."""

    def __init__(
        self,
        stream: StreamInfo,
        position: Position,
        settings: AlignmentSettings | None = None,
        *,
        latest_only: bool = False,
    ) -> None:
        """`latest_only`: see `KeepsLatest`."""
        self.stream = stream
        self.position = position
        """As committed, but for a phase or attempt that the next batch will carry."""
        self.durable = position
        """As committed."""
        self.settings = settings or AlignmentSettings()
        self._latest_only = latest_only
        self.caught_up = False
        """Whether all that the log held when the stream was opened has come by."""
        self._effects: list[Effect] = []
        self._progress = Progress(stream, self.settings)
        self._arrivals = Arrivals()
        self._opening = Opening("")
        self._connected = False
        self.asked = ""
        self._another_log = False
        self.lateness = Lateness(stream, position.known_to_us, self.settings)
        self._census_asked = False
        self._held = ""
        """What a held sweep would remove."""
        self._dirty = False
        """The phase moved since the last commit, and no batch has carried it yet."""

    @property
    def restless(self) -> bool:
        """Whether a `tick` would have something to commit at once."""
        return self._dirty or self.position.phase is Phase.SWEEPING

    def effects(self) -> list[Effect]:
        """What the driver must do now; taking empties the list."""
        effects, self._effects = self._effects, []
        return effects

    # -- opening and closing ---------------------------------------------------------------------

    def start(self, now_us: int) -> str | Start:
        """Where to open the stream: after our token, or from its start for an attempt."""
        self._opening = opening(
            self.stream,
            self.position,
            known_to_us=self.lateness.known_to_us,
            now_us=now_us,
            asked=self.asked,
            another_log=self._another_log,
        )
        return self._opening.start

    def opened(self, now_us: int) -> None:
        """The stream is open where `start` said. From its start: a new attempt begins."""
        self._connected = True
        resumed = not isinstance(self._opening.start, Start)
        if not resumed:
            self.position = new_attempt(
                self.stream, self.position, another_log=self._opening.another_log, now_us=now_us
            )
            self._dirty = True
            self.lateness.known_to_us = self.position.known_to_us
            self.asked = ""
            self._another_log = False
        self._progress = Progress(self.stream, self.settings)
        self._progress.opened(self.position, now_us)
        self.lateness.opened(now_us)
        baseline = self.stream.mode is Mode.BASELINE
        self._arrivals.opened(self.position, resumed=resumed, gapless=baseline)
        if resumed:
            if self.asked:
                self._effects.append(Reopen(self.asked))
            elif self.position.phase is Phase.SWEEP_HELD:
                # The guard may have been set anew since it held the sweep.
                self._effects.append(TakeCensus(self.position.attempt))
            return
        self._notice(NoticeKind.ATTEMPT, f"attempt {self.position.attempt}: {self._opening.reason}")
        if baseline:
            self._effects.append(ReadBaseline())

    def closed(self) -> None:
        """The connection is gone. An open attempt goes on after the next opening (A7).

        What no commit has carried yet is forgotten: it is decided again.
        """
        self._connected = self.caught_up = False
        self._census_asked = False
        # What was asked of this connection must not be done with the next.
        self._effects = [effect for effect in self._effects if isinstance(effect, Notice)]
        if self.position.attempt_started_at_us != self.durable.attempt_started_at_us:
            # The attempt was never made durable: what called for it calls again.
            self.asked = self.asked or self._opening.reason
            self._another_log = self._another_log or self._opening.another_log
        self.position = self.durable
        self._dirty = False

    def token_refused(self) -> None:
        """The provider will not resume from our token: the next opening is from the start."""
        self.asked = "the provider refused our token"

    def realign(self, reason: str) -> None:
        """Client-driven realignment (TR-548 ST-2.2 step 2): open again, from the start."""
        self.asked = reason
        if self._connected:
            self._effects.append(Reopen(reason))

    def listened(self, since_us: int, until_us: int) -> None:
        """Silence says something of the log since we do not hold it back, until a sign of life."""
        self._progress.listened(since_us, until_us)

    # -- records ---------------------------------------------------------------------------------

    def receive(self, delivery: Delivery, now_us: int) -> Batch | None:
        """What to commit for a delivery; None when an effect must be carried out first.

        After `AskHoldsBefore` the same delivery is given again; after `Reopen` it is dropped: the
        provider states it again.
        """
        records = delivery.records
        deviations: dict[str, int] = {}
        if records and not self._arrivals.settled:
            records, found = self._arrivals.sift(records, self.position)
            if found is not None and not self._arrived(*found):
                return None
        offsets = dict(self.position.offsets)
        records = self._progress.follow(records, offsets, self.position, deviations, now_us)
        if self._arrivals.hole(records, self.position, offsets):
            self._arrived(Arrival.HOLE, records[0])
            return None
        if self._lost(now_us, self._progress.oldest_us if records else now_us):
            return None
        position = advanced(
            self.position,
            self._progress,
            records,
            offsets,
            known_to_us=self.lateness.known_to_us,
            now_us=now_us,
        )
        if records:
            self.lateness.read(records[-1].appended_at_us, now_us)
        content = partial(
            opened, self.stream, delivery, records, deviations, latest_only=self._latest_only
        )
        batch = batch_of(self.stream, self.settings, position, content)
        self._consider(position, now_us)
        return batch

    def evidence(self, partition: str, *, holds_before: bool) -> None:
        """The answer to `AskHoldsBefore`."""
        self._arrivals.evidence(partition, holds_before=holds_before)

    def baseline_page(self, rows: list[Record]) -> Batch:
        """What to commit for a page of current state."""
        return batch_of(self.stream, self.settings, self._advance(), Delivery(rows).opened)

    def baseline_read(self, now_us: int) -> None:
        """Current state was read whole and committed: what was held is replayed next."""
        self._move(Event.BASELINE_READ)
        self._progress.silence_from(now_us)

    def census(self, census: Census) -> None:
        """Decide about the sweep that is due: begin it, or hold it (A6)."""
        self._census_asked = False
        share, least = self.settings.sweep_guard_share, self.settings.sweep_guard_records
        if census.unmarked > least and census.unmarked > census.total * share:
            self._held = f"{census.unmarked:,} of {census.total:,} entities"
            self._move(Event.SWEEP_HELD)
        else:
            self._move(Event.SWEEP_BEGUN)

    def release_sweep(self) -> None:
        """Let a held sweep go on."""
        self._move(Event.SWEEP_BEGUN)

    def committed(self, batch: Batch, result: CommitResult) -> None:
        """The batch is durable. A phase that moved meanwhile is kept for the next one."""
        phase = self.position.phase
        if batch.position.phase is not self.durable.phase:
            self._tell_phase(batch.position)
        position = batch.position
        if result.unresolved_keys:
            # Tombstones of what only a GET has shown, by names unknown to us. The sink wrote it so.
            position = msgspec.structs.replace(position, owes_baseline=True)
        self.position = self.durable = position
        self._dirty = False
        if phase is not batch.position.phase:
            self._set(phase=phase)
        self.lateness.known(batch.position.known_to_us)
        if batch.sweep is not None:
            self._set(sweep_cursor=result.sweep_cursor)
            if result.sweep_done:
                self._move(Event.SWEPT)

    def tick(self, now_us: int, state: StreamState = StreamState.UNKNOWN) -> Batch | None:
        """Time has passed: a sweep step, a phase or a heartbeat may be due for a commit."""
        if not self._connected or self.position.phase is Phase.BASELINING:
            return None
        self._progress.attested = state is StreamState.ACTIVE
        if state in (StreamState.PAUSED, StreamState.ALIGNING):
            # A silence that the provider announces says nothing about the head of the log.
            self._progress.silence_from(now_us)
        elif self._lost(now_us, now_us):
            return None
        elif self.position.phase is not Phase.ALIGNING and self._progress.quiet(now_us):
            self.lateness.silent(self.settings.quiet_s, self._progress.heard_until(now_us))
        if baseline_due(self.position, self.settings.rebaseline_min_s, now_us):
            self.realign("a tombstone named an entity that only the baseline knew")
            return None
        self._consider(self.position, now_us)
        if self.restless or self.lateness.heartbeat_due(self.position):
            return batch_of(self.stream, self.settings, self._advance())
        return None

    def _arrived(self, arrival: Arrival, record: Statement) -> bool:
        """What a first record told (A2). False: the delivery cannot be used now."""
        if arrival is Arrival.REWOUND:
            self._notice(NoticeKind.REWOUND, "the provider delivers recent records again")
            return True
        if arrival is Arrival.UNDECIDED:
            self._effects.append(AskHoldsBefore(record, watched(record)))
        else:
            self._another_log = arrival is Arrival.ANOTHER_LOG
            self.realign(f"the first record after the reconnect shows it: {arrival}")
        return False

    def _lost(self, now_us: int, oldest_us: int) -> bool:
        """Rule A8: beyond the tombstone retention, realign without waiting to be dropped."""
        reason = self.lateness.lost(self.position, oldest_us, now_us)
        if reason:
            self._notice(NoticeKind.LOST, reason)
            self.realign(reason)
        return bool(reason)

    def _advance(self) -> Position:
        return advanced(self.position, self._progress, known_to_us=self.lateness.known_to_us)

    def _consider(self, position: Position, now_us: int) -> None:
        """Whether the head of the log was reached, and whether a sweep is due."""
        if not self.caught_up and self._progress.caught_up(now_us):
            self.caught_up = True
            self._notice(NoticeKind.CAUGHT_UP, "all that was in the log at the opening is read")
        if position.phase is not Phase.ALIGNING or self._census_asked:
            return
        if self._progress.sweep_due(position, now_us):
            self._census_asked = True
            self._effects.append(TakeCensus(position.attempt))

    def _tell_phase(self, position: Position) -> None:
        """Tell of a phase when it is durable, so that whoever hears it finds it."""
        if position.phase is Phase.ALIGNED:
            self._notice(NoticeKind.ALIGNED, f"aligned by attempt {position.attempt}")
        elif position.phase is Phase.SWEEP_HELD:
            self._notice(NoticeKind.SWEEP_HELD, f"the sweep would remove {self._held}")

    def _notice(self, kind: NoticeKind, text: str) -> None:
        self._effects.append(Notice(kind, text))

    def _move(self, event: Event) -> None:
        self._set(phase=after(self.position.phase, event))

    def _set(self, **changes: Any) -> None:
        self.position = msgspec.structs.replace(self.position, **changes)
        self._dirty = True
