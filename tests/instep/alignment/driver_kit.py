"""Drives the real `Alignment` between a `ModelLog` and a `ModelStore`, as a runner would."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

import msgspec

from instep import AlignmentSettings, Phase
from instep.alignment.effects import (
    Effect,
    EstimateSweep,
    Notice,
    NoticeKind,
    ProbeOldest,
    Reopen,
)
from instep.alignment.machine import Alignment
from instep.model.batches import Batch, CommitResult
from instep.model.records import RecordChunk, RecordHeader
from instep.model.streams import Start, StreamState
from tests.instep.alignment.model_log_kit import (
    US,
    ModelFeed,
    ModelLog,
    ModelStore,
    Stored,
    TokenUnknown,
)

SETTINGS: Final = AlignmentSettings(
    quiet_s=40.0, unreached_quiet_s=240.0, sweep_guard_records=3, sweep_step_records=3
)
TICK_S: Final = SETTINGS.quiet_s / 4


KEYS: Final = [f"key-{number}" for number in range(6)]


class Driver:
    """A consumer: opens, reads, commits, and checks at each step what must never happen."""

    def __init__(self, log: ModelLog, settings: AlignmentSettings = SETTINGS) -> None:
        self.log = log
        self.settings = settings
        self.store = ModelStore(on_sweep=self._swept)
        self.core = Alignment(log.info, self.store.position, settings)
        self.feed: ModelFeed | None = None
        self.starts: list[str | Start] = []
        self.notices: list[Notice] = []
        self.swept: list[str] = []
        self.probes = 0
        self.one_connection = False
        """Whether the provider refuses a second connection."""
        self.emulated = False
        """Whether the log may begin with a snapshot."""
        self.others_stated = False
        self.deviations: Counter[str] = Counter()
        self._stalled_us = 0

    # -- connections -----------------------------------------------------------------------------

    def open(self, *, rewind: int = 0, restart: bool = False, refuse: bool = False) -> None:
        """Connect; where the token is of another log, the provider refuses it or restarts."""
        assert self.feed is None
        self.core.stream = msgspec.structs.replace(
            self.log.info, may_start_with_snapshot=self.emulated
        )
        start = self.core.start(self.log.now_us)
        try:
            feed = self.log.connect(start, rewind=rewind, restart=restart)
        except TokenUnknown:
            if refuse:
                self.core.token_refused()
                self.core.closed()
                return
            feed = self.log.connect(start, restart=True)
        self.starts.append(start)
        before = self.core.position
        self.feed = feed
        self._stalled_us = self.log.now_us
        self.core.opened(self.log.now_us)
        untouched = before.phase is Phase.ALIGNING and before.token is None
        opens = isinstance(start, Start) and not untouched
        assert self.core.position.attempt == before.attempt + opens
        self.carry_out()

    def close(self) -> None:
        self.feed = None
        self.core.closed()
        self.core.effects()

    def crash(self) -> None:
        """End the process; another one begins with the durable state."""
        self.feed = None
        self.core = Alignment(self.log.info, self.store.position, self.settings)

    # -- records ---------------------------------------------------------------------------------

    def read(self, most: int = 1_000, prefer: int = 0) -> RecordChunk | None:
        """Return the next chunk of the connection. None: there is none, or the provider holds it
        back.
        """
        if self.feed is None or self.log.state is not StreamState.ACTIVE:
            return None
        records = self.feed.pull(most, prefer)
        self._stalled_us = self.log.now_us
        return RecordChunk(records) if records else None

    def deliver(self, most: int = 1_000, prefer: int = 0) -> None:
        """Read a chunk, commit it, and carry out the effects."""
        chunk = self.read(most, prefer)
        if chunk is not None:
            self.handle(chunk)

    def handle(self, chunk: RecordChunk) -> None:
        again = True
        while again and self.feed is not None:
            self.commit(self.core.receive(chunk, self.log.now_us))
            again = self.carry_out()

    def tick(self) -> None:
        now_us = self.log.now_us
        elsewhere_us = now_us if self.others_stated else 0
        self.commit(self.core.tick(now_us, self.log.state, stated_elsewhere_us=elsewhere_us))
        self.carry_out()

    def commit(self, batch: Batch | None) -> None:
        if batch is not None:
            self.deviations.update(batch.deviations)
            result = self.store_commit(batch)
            self.core.committed(batch, result)

    def store_commit(self, batch: Batch) -> CommitResult:
        assert (batch.sweep is not None) is (batch.position.phase is Phase.SWEEPING)
        marks = {key: stored.attempt for key, stored in self.store.entities.items()}
        result = self.store.commit(batch)
        for key, stored in self.store.entities.items():
            assert stored.attempt >= marks.get(key, 0), f"the mark of {key} decreased"
        return result

    def carry_out(self) -> bool:
        """Carry out the effects. Returns True when the chunk must be handled again."""
        again = False
        while effects := self.core.effects():
            for effect in effects:
                again |= self._carry_out(effect)
                if self.feed is None:
                    return False
        return again

    def _carry_out(self, effect: Effect) -> bool:
        match effect:
            case Notice():
                self.notices.append(effect)
            case ProbeOldest():
                self.probes += 1
                if self.one_connection:
                    self.core.probe_failed(refused=True)
                else:
                    self.core.probed(self._oldest(effect.partition))
                return True
            case EstimateSweep():
                self.core.sweep_estimated(self.store.estimate_sweep(effect.attempt))
            case Reopen():
                self.close()
            case _:
                raise AssertionError(effect)
        return False

    def _oldest(self, partition: str | None) -> RecordHeader | None:
        """What a second connection shows first."""
        self.log.compact()
        feed = self.log.connect(Start.OLDEST)
        while records := feed.pull(1_000):
            for one in records:
                if partition in (None, one.partition):
                    return one
        return None

    def count_notices(self, kind: NoticeKind) -> int:
        return sum(notice.kind is kind for notice in self.notices)

    def last_notice(self, kind: NoticeKind) -> str:
        return [notice.text for notice in self.notices if notice.kind is kind][-1]

    # -- time ------------------------------------------------------------------------------------

    def wait(self, seconds: float) -> None:
        """Let time pass, with ticks. A provider that is ACTIVE holds nothing back for long."""
        until_us = self.log.now_us + int(seconds * US)
        while self.log.now_us < until_us:
            flows = self.feed is not None and self.log.state is StreamState.ACTIVE
            pending = flows and self.feed is not None and bool(self.feed.pending())
            step_s = TICK_S if pending else max(TICK_S, seconds / 8)
            self.log.now_us = min(until_us, self.log.now_us + int(step_s * US))
            if pending and self.log.now_us - self._stalled_us > 2 * TICK_S * US:
                self.deliver(1)
            if self.feed is not None:
                self.tick()

    def wait_silently(self, seconds: float) -> None:
        """Let time pass, with ticks, while nothing is delivered."""
        for _ in range(int(seconds)):
            self.log.now_us += US
            self.tick()

    def run(self, seconds: float) -> None:
        """Let time pass as a runner does: what is closed is opened again."""
        for _ in range(int(seconds // TICK_S)):
            if self.feed is None:
                self.open()
            self.wait(TICK_S)

    def settle(self, rounds: int = 60) -> None:
        """Heal everything; the alignment must come to its end within so many rounds."""
        self.log.state = StreamState.ACTIVE
        for _ in range(rounds):
            if self.feed is None:
                self.open()
            self.deliver()
            if self.core.position.phase is Phase.SWEEP_HELD:
                self.core.release_sweep()
            self.wait(self.settings.quiet_s)
            drained = self.feed is not None and not self.feed.pending()
            if drained and self.store.position.phase is Phase.ALIGNED:
                return
        raise AssertionError(f"not aligned after {rounds} rounds: {self.core.position}")

    def be_away(self, seconds: float) -> None:
        """Lose the connection for this time; the log compacts what it may."""
        self.close()
        self.log.now_us += int(seconds * US)
        self.log.compact()

    def attempt(self) -> None:
        """Begin another attempt, an hour later."""
        self.wait(3600.0)
        self.core.realign("a test asks for it")
        self.carry_out()
        self.open()

    def converges(self) -> bool:
        """Heal, and return whether the store equals what the provider states."""
        self.settle()
        return self.store.bodies == self.log.bodies

    def decided(self, phase: Phase) -> bool:
        """Whether the alignment is in this phase, durable or not."""
        return self.core.position.phase is phase

    def reached(self, phase: Phase) -> bool:
        """Whether this phase is durable."""
        return self.store.position.phase is phase

    # -- what must never happen ------------------------------------------------------------------

    def _swept(self, key: str, stored: Stored) -> None:
        self.swept.append(key)
        since_us = self.log.alive.get(key, (None,))[0]
        opened_us = self.core.position.attempt_started_at_us
        assert since_us is None or since_us >= opened_us, f"{key} exists and was swept: {stored}"

    def check_position(self) -> None:
        """Check rule A1: all records up to the position are in the store."""
        position = self.store.position
        if position.token is None:
            return
        try:
            places = self.log.read(position.token)
        except TokenUnknown:
            return
        for entry in {entry.key: entry for entry in self.log.entries}.values():
            if not entry.ends and entry.offset <= places[entry.partition]:
                stored = self.store.entities.get(entry.key)
                assert stored, f"{entry} is not stored, {position.token} is ahead"
                assert stored.record.body == entry.body


def aligned(partitions: int = 1, *, offsets: bool = True, keys: Iterable[str] = KEYS) -> Driver:
    """A consumer that is aligned with these entities."""
    driver = Driver(ModelLog(partitions, offsets))
    for key in keys:
        driver.log.now_us += US
        driver.log.put(key)
    driver.settle()
    return driver
