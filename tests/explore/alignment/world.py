"""The alignment of one stream with a small provider, as a world to explore.

The driver of `instep.runtime.streams.worker` is repeated here in its plainest form, and so is a
store: rule A3, marks and the sweep. What must hold is stated in terms of the provider:

- a sweep removes no entity that lives as it is stored (A17);
- a stream that is shown as aligned, and was silent for long enough to have been proven, holds what
  exists and nothing else (A2, A5);
- once faults have ended, it comes to that (A7, A16).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import inf
from typing import Any, Final, NamedTuple

from instep.alignment.effects import (
    Effect,
    EstimateSweep,
    Notice,
    NoticeKind,
    ProbeOldest,
    ReadBaseline,
    Reopen,
)
from instep.alignment.machine import Alignment
from instep.alignment.settings import AlignmentSettings
from instep.alignment.unknown_entities import changes_met
from instep.model.batches import Batch, CommitResult
from instep.model.position import UNREACHABLE_OFFSET, Phase, Position, recent_digest
from instep.model.records import Record, RecordChunk, RecordType
from instep.model.streams import Mode, Start, StreamInfo, StreamState, SweepEstimate
from tests.explore.alignment.promises import check_commit, check_notices, is_guarded
from tests.explore.alignment.provider import Entry, Log, Provider
from tests.explore.canonical import Canonical, Encode, Fields, clone, skip
from tests.explore.search import Violation

__all__ = ["FIELDS", "SETTINGS", "AlignmentWorld", "Bounds"]

_US: Final = 1_000_000
_START_S: Final = 100
"""No time is 0, which means never."""
SETTINGS: Final = AlignmentSettings(
    quiet_s=2.0,
    unreached_quiet_s=3.0,
    probe_min_s=3.0,
    rebaseline_min_s=3.0,
    empty_confirm_s=2.0,
    heartbeat_s=2.0,
    lost_retry_s=1.0,
    lost_retry_max_s=2.0,
)
_ELDEST_S: Final = 5
"""Longer than every duration of the settings and of most providers."""


class Bounds(NamedTuple):
    """How far a world is explored."""

    keys: str = "ab"
    changes: int = 3
    """Entities that are made, changed or ended."""
    faults: int = 2
    """Connections that are lost, restarts, logs that are lost, kills."""
    truncations: int = 0
    commands: int = 0
    """What an operator asks for."""
    alone: bool = False
    """Whether no other stream of the provider ever states anything."""
    suspends: bool = False
    """Whether the process may stand still for longer than the log keeps ends, as a fault."""
    reconfigures: bool = False
    """Whether a process may read the log in the other way than the one before, as a fault."""


class Row(NamedTuple):
    """An entity as it is stored."""

    token: str
    partition: str
    offset: int
    at_us: int
    version: int
    lineage: int
    attempt: int


def _stream(log: Log, *, by_baseline: bool) -> StreamInfo:
    """The log, as it is read."""
    return StreamInfo(
        id="s",
        origin="o",
        kind="explored",
        mode=Mode.BASELINE if by_baseline else Mode.LOG,
        classes=("X",),
        one_class=True,
        may_start_with_snapshot=False,
        compaction_delay_s=log.compaction_delay_s if log.compacted else None,
        tombstone_retention_s=log.tombstone_retention_s if log.compacted else None,
        compacts=log.compacted and by_baseline,
        readable=frozenset({"X"}) if by_baseline else frozenset(),
        keys_are_uuids=by_baseline,
    )


_digest = lru_cache(recent_digest)


class _Closed(Exception):
    """The connection is closed, and with `killed` the process is dead."""

    def __init__(self, *, killed: bool = False) -> None:
        self.killed = killed


class AlignmentWorld:
    """One state: the provider, the connection, the store, and the alignment between them."""

    def __init__(
        self,
        log: Log,
        bounds: Bounds,
        settings: AlignmentSettings = SETTINGS,
        *,
        by_baseline: bool = False,
    ) -> None:
        """`by_baseline`: a compacted log is read behind a baseline (A15), as a truncated one is."""
        self.settings = settings
        self.now_s = _START_S
        self.provider = Provider(log)
        self.bounds = bounds
        self.changes, self.faults = bounds.changes, bounds.faults
        self.truncations, self.commands = bounds.truncations, bounds.commands
        self.named = 0
        """How many entities were ever stated."""
        self.rows: dict[str, Row] = {}
        self.position = Position()
        self.core: Alignment | None = None
        self.place: int | None = None
        """The place behind which the connection goes on; None: there is none."""
        self.opened_s = self.left_s = _START_S
        self.loss_unseen = False
        """Whether the log was lost, or a record left it unread, and nothing was delivered since."""
        self.stalled = False
        """Whether a second has passed since the provider could have sent its next record: it sends
        it before `quiet_s` have passed, or its silence would say that there is none.
        """
        self.kill = ""
        """Where the process is killed in this move."""
        self.begun = False
        """Whether this world begins further on."""
        self.delivered: Record | None = None
        """What is handed over in this move."""
        self.stream = _stream(log, by_baseline=by_baseline or not log.compacted)

    def within(self, bounds: Bounds) -> AlignmentWorld:
        """The same state, from which these bounds count."""
        world = self._copy()
        world.bounds, world.begun = bounds, True
        world.changes, world.faults = bounds.changes, bounds.faults
        world.truncations, world.commands = bounds.truncations, bounds.commands
        return world

    # -- moves -----------------------------------------------------------------------------------

    def moves(self) -> Iterator[str]:  # noqa: C901, PLR0912 - one list, from top to bottom
        provider, connected = self.provider, self.place is not None
        if self.changes:
            live = dict(provider.live)
            # An entity that was never named is like any other.
            for key in self.bounds.keys[: self.named + 1]:
                yield f"state {key}"
                if key in live:
                    yield f"end {key}"
        if provider.forget(self.now_s) != provider:
            yield "forget"
        # Before the first record of an attempt there is no offset to miss one by.
        read = self.position.offsets or (self.place or 0) >= provider.next_place - 1
        if self.truncations and provider.log and read:
            yield "truncate"
        pending = self._pending() is not None
        if not (pending and self.stalled):
            yield "wait"
            if connected and self.faults:
                yield "wait, killed before the commit"
        if pending:
            yield "deliver"
            if self.faults:
                yield "deliver, killed before the commit"
                yield "deliver, killed after the commit"
        if not connected:
            yield "open"
            if self.faults:
                yield "open, restarted"
                yield "open, killed before the commit"
                if self.stream.mode is Mode.BASELINE:
                    yield "open, killed after the commit"
                if self.position.token is not None:
                    yield "open, redelivering"
        if self.commands and self.core is not None:
            yield "realign"
        if connected and self.core is not None and self.core.position.phase is Phase.SWEEP_HELD:
            yield "release"
        if self.faults:
            if connected:
                yield "cut"
                yield "cut, going away"
                if self.bounds.suspends:
                    yield "suspend"
            if self.core is not None:
                yield "kill"
            if not connected:
                if self.bounds.reconfigures:
                    yield "start anew, read in the other way"
                yield "lose log, begin anew"
                yield "lose log, go on further"

    def after(self, move: str) -> AlignmentWorld:
        world = self._copy()
        world._move(move)
        return world

    def _copy(self) -> AlignmentWorld:
        world = object.__new__(type(self))
        world.__dict__.update(self.__dict__)
        world.rows = self.rows.copy()
        if self.core is not None:
            world.core = clone(self.core, ("instep.alignment",))
        return world

    def _move(self, move: str) -> None:  # noqa: C901, PLR0912 - one branch a move
        verb, _, how = move.partition(", ")
        name, _, key = verb.partition(" ")
        self.faults -= _is_fault(move)
        self.kill = how if how.startswith("killed") else ""
        try:
            match name:
                case "state":
                    self.changes -= 1
                    self.named = max(self.named, self.bounds.keys.index(key) + 1)
                    self.provider = self.provider.state(key, self.now_s)
                case "end":
                    self.changes -= 1
                    self.provider = self.provider.end(key, self.now_s)
                case "forget":
                    self.provider = self.provider.forget(self.now_s)
                case "truncate":
                    self.truncations -= 1
                    # Whether it was read shows the next record only.
                    read = self.place is not None and self.provider.log[0].place <= self.place
                    self.loss_unseen = self.loss_unseen or not read
                    self.provider = self.provider.truncate()
                case "lose":
                    further = how == "go on further"
                    if not self.provider.kept.rebuilds_at_once:
                        self.now_s += 1
                    self.provider = self.provider.rebuild(self.now_s, further=further)
                    self.loss_unseen = True
                case "wait":
                    self.now_s += 1
                    self.provider = self.provider.compact(self.now_s)
                    self.stalled = self._pending() is not None
                    self._hand_over(None)
                case "deliver":
                    self._deliver()
                case "open":
                    self._open(how)
                case "cut":
                    if how and self.core is not None:
                        self.core.restart_suggested()
                    self._close(killed=False)
                case "realign":
                    self.commands -= 1
                    self._command("realign")
                case "release":
                    self._command("release")
                case "suspend":
                    # What came meanwhile waits in the socket, and silence counts from here.
                    self.now_s += self.provider.kept.tombstone_retention_s + 1
                    self.provider = self.provider.compact(self.now_s)
                    self.opened_s, self.stalled = self.now_s, False
                    self._hand_over(None)
                case "start":
                    by_log = self.stream.mode is Mode.LOG
                    self.stream = _stream(self.provider.kept, by_baseline=by_log)
                    self.core = None
                case "kill":
                    self._close(killed=True)
        except _Closed as closed:
            self._close(killed=closed.killed)
        self.kill, self.delivered = "", None

    def _close(self, *, killed: bool) -> None:
        if self.place is not None:
            self.left_s = self.now_s
        self.place = None
        if killed:
            self.core = None
        elif self.core is not None:
            self.core.closed()

    # -- the driver ------------------------------------------------------------------------------

    @property
    def _now_us(self) -> int:
        return self.now_s * _US

    def _open(self, how: str) -> None:
        if self.core is None:
            self.core = Alignment(self.stream, self.position, self.settings, marks_keys=True)
            self.left_s = self.now_s
        core, provider = self.core, self.provider
        start = core.start(self._now_us)
        if start is Start.LATEST:
            self.place = provider.next_place - 1
        elif isinstance(start, Start) or how == "restarted":
            self.place = -1
        else:
            place = provider.opens_after(start, self.now_s)
            self.place = -1 if place is None else place
            if place is not None and how == "redelivering":
                before = [entry.place for entry in provider.log if entry.place <= place]
                self.place = before[-1] - 1 if before else place
        self.opened_s, self.stalled = self.now_s, False
        core.opened(self._now_us, left_us=self.left_s * _US)
        self._check_opened(core)
        self._carry_out(core)

    def _pending(self) -> Entry | None:
        return None if self.place is None else self.provider.next_after(self.place)

    def _deliver(self) -> None:
        entry = self._pending()
        assert entry is not None
        self.place, self.stalled = entry.place, False
        self.loss_unseen = self.loss_unseen and entry.log != self.provider.logs
        self.delivered = self._record(entry)
        self._hand_over(RecordChunk([self.delivered]))

    def _record(self, entry: Entry) -> Record:
        stated = self.provider.kept.offsets
        return Record(
            "s",
            entry.key,
            RecordType.TOMBSTONE if entry.ends else RecordType.CREATE_UPDATE,
            self.provider.token(entry),
            entry.at_s * _US,
            partition=str(entry.partition) if stated else "",
            offset=entry.offset if stated else -1,
            entity_class="X",
            body=b"%d" % entry.version,
        )

    def _hand_over(self, chunk: RecordChunk | None) -> None:
        """Hand a delivery, or the time, to the alignment."""
        core = self.core
        if core is None or self.place is None:
            return
        again = True
        while again:
            core.listened(self.opened_s * _US, self._now_us)
            if chunk is None:
                stated_us = 0 if self.bounds.alone else self._now_us
                batch = core.tick(self._now_us, StreamState.ACTIVE, stated_elsewhere_us=stated_us)
            else:
                batch = core.receive(chunk, self._now_us)
            if batch is not None:
                self._commit(core, batch)
            again = self._carry_out(core)

    def _command(self, command: str) -> None:
        core = self.core
        assert core is not None
        if command == "realign":
            core.realign("an operator asks for it")
        else:
            core.release_sweep()
        if self.place is not None:
            self._carry_out(core)

    def _carry_out(self, core: Alignment) -> bool:
        again = False
        while effects := core.effects():
            for effect in effects:
                match effect:
                    case ProbeOldest():
                        core.probed(self._oldest(effect.partition))
                        again = True
                    case EstimateSweep():
                        unmarked = sum(row.attempt < effect.attempt for row in self.rows.values())
                        total = len(self.rows)
                        estimate = SweepEstimate(total, unmarked, {"X": (total, unmarked)})
                        # It may have been released meanwhile.
                        if core.position.phase is not Phase.SWEEPING:
                            core.sweep_estimated(estimate)
                            self._check_sweep(core, estimate)
                    case ReadBaseline():
                        self._read_baseline(core)
                    case Reopen():
                        raise _Closed
                    case _:
                        pass
        return again

    def _oldest(self, partition: str | None) -> Record | None:
        for entry in self.provider.log:
            record = self._record(entry)
            if partition is None or record.partition == partition:
                return record
        return None

    def _read_baseline(self, core: Alignment) -> None:
        rows = [
            Record(
                "s",
                key,
                RecordType.CREATE_UPDATE,
                "",
                self._now_us,
                entity_class="X",
                uuid=key,
                body=b"%d" % version,
            )
            for key, version in self.provider.live
        ]
        if rows:
            self._commit(core, core.baseline_page(rows))
        core.baseline_read(self._now_us)

    # -- the store -------------------------------------------------------------------------------

    def _commit(self, core: Alignment, batch: Batch) -> None:
        if self.kill == "killed before the commit":
            raise _Closed(killed=True)
        assert batch.expects_ordinal == self.position.ordinal
        before = self.position
        keeps_s = self.provider.kept.tombstone_retention_s if self._forgets else inf
        least_s = min(self.settings.heartbeat_s, keeps_s / 4)
        check_commit(before, batch, self.delivered, least_s=least_s)
        for record in batch.records:
            self._apply(record, batch)
        swept = 0
        if batch.sweep is not None:
            swept = self._sweep(batch.sweep.attempt, by_classes=batch.sweep.readable is not None)
        unknown = self._unknown_entities()
        self.position = changes_met(batch.position, unknown)
        result = CommitResult(
            swept=swept, sweep_done=batch.sweep is not None, unknown_entities=unknown
        )
        if self.kill == "killed after the commit":
            raise _Closed(killed=True)
        told = core.effects()
        core.committed(batch, result)
        after = core.effects()
        core._effects += [*told, *after]
        swept = self.position.sweep_removed
        check_notices(before, self.position, after, swept=swept)

    @property
    def _forgets(self) -> bool:
        """Whether the log forgets ends."""
        return self.provider.kept.compacted

    def _unknown_entities(self) -> dict[str, str]:
        """What CHANGEs of the batch name that is not stored."""
        return {}

    def _apply(self, record: Record, batch: Batch) -> None:
        """Rule A3."""
        stored = self.rows.get(record.key)
        if stored is not None and stored.lineage == batch.lineage:
            same = stored.partition == record.partition
            if same and stored.offset >= 0 and record.offset >= 0:
                newer = stored.offset > record.offset
            else:
                newer = stored.at_us > record.appended_at_us
            if newer:
                return
        if record.ends:
            self.rows.pop(record.key, None)
        else:
            self.rows[record.key] = Row(
                record.token,
                record.partition,
                record.offset,
                record.appended_at_us,
                int(bytes(record.body or b"0")),
                batch.lineage,
                batch.position.attempt,
            )

    def _sweep(self, attempt: int, *, by_classes: bool) -> int:
        gone = [key for key, row in self.rows.items() if row.attempt < attempt]
        live = dict(self.provider.live)
        for key in gone:
            if live.get(key) == self.rows[key].version:
                raise Violation(f"a live entity was swept: {key}")
            del self.rows[key]
        if by_classes:
            # What a baseline has stated is compared with no record from now on (A14).
            for key, row in self.rows.items():
                if not row.token:
                    self.rows[key] = row._replace(lineage=0)
        return len(gone)

    # -- what must hold --------------------------------------------------------------------------

    def _check_opened(self, core: Alignment) -> None:
        """Whether an attempt is told where one has begun, and that it has a cause."""
        durable = core.durable
        number = core.position.attempt - durable.attempt
        told = sum(_is_told(one, NoticeKind.ATTEMPT) for one in core._effects)
        # One that has read nothing keeps its number when it is begun again.
        again = number == 0 and durable.attempt_records == 0
        if told not in ((0, 1) if again else (number,)):
            raise Violation(f"{number} attempts have begun, {told} are told")
        bounds = self.bounds
        undisturbed = not (bounds.faults or bounds.truncations or bounds.commands)
        if told and durable.attempt and undisturbed and not self._may_realign:
            raise Violation("an attempt that nothing calls for")

    @property
    def _may_realign(self) -> bool:
        """Whether more than faults and commands may call for an attempt."""
        return self.begun

    def _check_sweep(self, core: Alignment, estimate: SweepEstimate) -> None:
        """Whether the sweep is held where it must be (A6, A19), and nowhere else."""
        if core.realign_reason:
            return
        by_log = self.stream.mode is Mode.LOG
        empty = by_log and not core.position.attempt_records and estimate.unmarked > 0
        held = core.position.phase is Phase.SWEEP_HELD
        if by_log and not empty and held != is_guarded(estimate, self.settings):
            raise Violation(f"the sweep is {'' if held else 'not '}held: {estimate} (A6)")
        if empty and self.bounds.alone and not held:
            raise Violation("nothing of the provider has content, and the sweep is not held (A19)")

    def check(self) -> None:
        core = self.core
        if core is None or self.place is None or self._pending() is not None:
            return
        shown = core.status().phase is Phase.ALIGNED
        # Of a truncated log that was lost a silence tells nothing.
        unseen = self.loss_unseen and not self.provider.kept.compacted
        if shown and self._is_proven and not unseen:
            self._compare()

    @property
    def _is_proven(self) -> bool:
        """Whether the connection has been silent for long enough to tell something."""
        return self.now_s - self.opened_s > self.settings.quiet_s + 1

    def _compare(self) -> None:
        stored = {key: row.version for key, row in self.rows.items()}
        live = dict(self.provider.live)
        if stored == live:
            return
        phantoms = sorted(stored.keys() - live.keys())
        missing = sorted(live.keys() - stored.keys())
        stale = sorted(key for key in stored.keys() & live.keys() if stored[key] != live[key])
        raise Violation(f"aligned, and yet phantoms {phantoms}, missing {missing}, stale {stale}")

    def settling(self) -> str:
        if self.place is None:
            return "open"
        if self._pending() is not None:
            return "deliver"
        core = self.core
        if core is not None and core.position.phase is Phase.SWEEP_HELD and self.place is not None:
            # An operator decides (A6, A19).
            return "release"
        phase = Phase.UNALIGNED if core is None else core.status().phase
        return "" if phase is Phase.ALIGNED and self._is_proven else "wait"

    # -- equal states ----------------------------------------------------------------------------

    def key(self) -> bytes:
        provider = self.provider
        eldest_s = max(_ELDEST_S, provider.kept.tombstone_retention_s + 1)
        out = Canonical(FIELDS, self._now_us, eldest_us=eldest_s * _US)
        out.notes["places"] = {_digest(provider.token(one)): one for one in provider.log}
        out.literal((self.changes, self.faults, self.truncations, self.commands))
        out.literal((self.named, self.loss_unseen, self.stalled))
        out.literal((self.place is None, self.stream.mode.value))
        out.ranked("place", -1 if self.place is None else self.place)
        out.ranked("place", provider.next_place)
        out.time(self.opened_s * _US if self.place is not None else 0)
        out.time(self.left_s * _US if self.place is None and self.core is not None else 0)
        out.ranked("log", provider.logs)
        for partition in range(provider.kept.partitions):
            out.ranked(f"offset {partition}", -1)
            out.ranked(f"offset {partition}", provider.next_offsets[partition])
        out.literal(len(provider.log))
        for entry in provider.log:
            out.ranked("place", entry.place)
            out.ranked(f"offset {entry.partition}", entry.offset)
            out.time(entry.at_s * _US)
            out.literal((entry.key, entry.ends, entry.log == provider.logs))
            out.ranked("version", entry.version)
        out.literal(len(provider.live))
        for key, version in provider.live:
            out.literal(key)
            out.ranked("version", version)
        out.literal(len(self.rows))
        for key in sorted(self.rows):
            row = self.rows[key]
            out.literal(key)
            _encode_token(out, row.token)
            _encode_offset(out, row.offset, row.partition)
            out.time(row.at_us)
            out.ranked("version", row.version)
            out.ranked("lineage", row.lineage)
            out.ranked("attempt", row.attempt)
        out.walk(self.position)
        core = self.core
        if core is not None:
            # Mostly there is one position.
            for position in (core.durable, core.position):
                if position is self.position:
                    out.literal("as stored")
                else:
                    out.walk(position)
            out.walk(core)
        return out.key()


def _is_told(effect: Effect, kind: NoticeKind) -> bool:
    return isinstance(effect, Notice) and effect.kind is kind


def _is_fault(move: str) -> bool:
    return ", " in move or move in ("cut", "kill", "suspend")


# -- what the fields of the alignment are ----------------------------------------------------------


def _encode_token(out: Canonical, token: str | None) -> None:
    if not token:
        out.literal(token)
        return
    log, place, at_s = map(int, token.split("."))
    out.ranked("log", log)
    out.ranked("place", place)
    out.time(at_s * _US)


def _encode_offset(out: Canonical, offset: int, partition: str) -> None:
    if offset == UNREACHABLE_OFFSET:
        out.literal("unreachable")
    else:
        out.ranked(f"offset {partition or '0'}", offset)


def _encode_offsets(out: Canonical, offsets: dict[str, int]) -> None:
    out.literal(tuple(sorted(offsets)))
    for partition in sorted(offsets):
        _encode_offset(out, offsets[partition], partition)


def _encode_times(out: Canonical, times: Any) -> None:
    values = times.items() if isinstance(times, dict) else enumerate(times)
    out.literal(len(times))
    for name, at_us in sorted(values):
        out.literal(name)
        out.time(at_us)


def _encode_start(out: Canonical, start: str | Start) -> None:
    if isinstance(start, Start) or not start:
        out.literal(str(start))
    else:
        _encode_token(out, start)


def _encode_recent(out: Canonical, recent: bytes) -> None:
    """Which records are remembered, in order, of those that may still come again."""
    size = len(_digest(""))
    places = out.notes["places"]
    for at in range(0, len(recent), size):
        entry = places.get(recent[at : at + size])
        if entry is not None:
            out.ranked("log", entry.log)
            out.ranked("place", entry.place)
    out.literal("recent")


def _encode_hold_offset(_out: Canonical, offset: int) -> None:
    # Of a hold; the worlds have no unreadable record yet, so none has a place.
    assert offset == -1


def _encode_header(out: Canonical, record: Record | None) -> None:
    if record is None:
        out.literal(None)
        return
    out.literal((record.key, record.kind.value, record.partition))
    _encode_token(out, record.token)
    _encode_offset(out, record.offset, record.partition)
    out.time(record.appended_at_us)


def _truth(out: Canonical, value: Any) -> None:
    out.literal(bool(value))


def _count(out: Canonical, value: Any) -> None:
    out.literal(min(value, 8))


def _time(out: Canonical, value: int) -> None:
    out.time(value)


def _seconds(out: Canonical, value: float) -> None:
    out.literal(min(value, float(_ELDEST_S)))


def _rank(kind: str) -> Encode:
    def encode(out: Canonical, value: Any) -> None:
        # The first attempt and the first log are told from others.
        out.literal(value <= 1)
        out.ranked(kind, value)

    return encode


FIELDS: Final = Fields(
    {
        # The positions of the alignment are walked by themselves.
        "position": skip,
        "durable": skip,
        # Constants of the world.
        "stream": lambda out, stream: out.literal(stream.latest_refused),
        "settings": skip,
        "_stream": skip,
        "_settings": skip,
        "_compaction_delay_us": skip,
        "_clock_error_us": skip,
        "_late_us": skip,
        "origin": skip,
        # Counters of which nothing is decided, or only whether there was anything.
        "ordinal": skip,
        "records": skip,
        "attempt_records": _truth,
        "sweep_removed": _truth,
        "sweep_cursor": skip,
        "offset": _encode_hold_offset,
        "unaligned_attempts": _truth,
        "unreadable": _truth,
        "unproven": _truth,
        "fruitless_gaps": _count,
        "gaps": _count,
        "_realigns": _count,
        "refused": _truth,
        "readable": _truth,
        "_row": _count,
        "_step": _count,
        "_unreadable_noted": _count,
        "readings": _count,
        # Texts of which only whether they are there counts.
        "realign_reason": _truth,
        "reason": _truth,
        "_held": skip,
        "_missing": skip,
        "_refusal": _truth,
        "_deviations": _truth,
        # Times.
        "appended_at_us": _time,
        "appended_us": _encode_times,
        "attempt_started_at_us": _time,
        "watermark_us": _time,
        "probed_at_us": _time,
        "newest_us": _time,
        "oldest_us": _time,
        "_heard_us": _encode_times,
        "_last_heard_us": _time,
        "_opened_us": _time,
        "_left_us": _time,
        "_estimate_us": _time,
        "_stated_elsewhere_us": skip,
        "_listened_us": _encode_times,
        "_last_followed_us": _time,
        "_lost_us": _time,
        "_retry_s": _seconds,
        "read_delay_s": _seconds,
        "since_us": _encode_times,
        "reread_at_us": _encode_times,
        # Names.
        "attempt": _rank("attempt"),
        "lineage": _rank("lineage"),
        "token": _encode_token,
        "start": _encode_start,
        "offsets": _encode_offsets,
        "recent": _encode_recent,
        "_doubtful": _encode_header,
        "_suspect": _encode_header,
        "_seen": lambda out, seen: out.literal(tuple(sorted(seen))),
        "_offsetless": skip,
        "_unreadable": skip,
        "_doubted": _encode_offsets,
    }
)
