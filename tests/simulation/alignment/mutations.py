"""Deliberate mistakes. The simulation must find each of them: it proves only what it can find."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager
from typing import Any, Final
from unittest.mock import patch

import msgspec

from instep.alignment import continuity as continuity_rules
from instep.alignment import sweep_trigger
from instep.alignment.continuity import Continuity, ContinuityCheck
from instep.alignment.gaps import GapDetector
from instep.alignment.lag import LagMonitor
from instep.alignment.machine import Alignment
from instep.alignment.plausibility import PlausibilityCheck
from instep.alignment.reading_progress import ReadingProgress
from instep.alignment.resume import from_the_start, new_attempt
from instep.alignment.sweep_trigger import PartitionProgress
from instep.alignment.transitions import AlignmentEvent
from instep.errors import InstepError, StreamGoneError, TokenRefusedError
from instep.model.batches import Batch
from instep.model.position import Phase, Position
from instep.model.records import Record
from instep.model.streams import Mode, Start, StreamInfo
from instep.runtime.retry import Environment, ReconnectPacing
from instep.runtime.streams.worker import StreamWorker
from instep_sql.engine import sqlite
from instep_sql.engine.sqlite import Sqlite
from instep_sql.entities import key_reconciliation, sweep
from instep_tapi.feeds.keep_alive import SignsOfLife
from tests.instep.alignment import (
    test_continuity,
    test_machine,
    test_machine_continuity,
    test_machine_lag,
    test_plausibility,
    test_reading_progress,
    test_resume,
    test_sweep_trigger,
)
from tests.instep.runtime import test_retry
from tests.instep_sql.entities import test_key_reconciliation
from tests.instep_sql.store_kit import Stage, stage
from tests.simulation.alignment import test_kept_seeds
from tests.simulation.alignment.options import drawn, further
from tests.simulation.alignment.simulation import SeedFailedError, simulate

__all__ = ["CAUGHT_BY_A_TEST", "MUTATIONS", "applied", "seeds_until_caught"]

Change = tuple[Any, str, Any]


def _sweep_on_rewind() -> list[Change]:
    """A rewind is taken for a restart, and the attempt is based on that guess."""

    def arrived(self: Alignment, continuity: Continuity, record: Record, now_us: int) -> None:
        del continuity, record
        begun_us = self._progress._opened_us or now_us
        self.position = new_attempt(self.stream, self.position, new_log=False, now_us=begun_us)
        self._pending_commit = True
        self._continuity.opened(self.position, resumed=False)

    return [(Alignment, "_on_continuity", arrived)]


def _token_before_data() -> list[Change]:
    commit = StreamWorker._commit

    async def early(self: StreamWorker, core: Alignment, batch: Batch) -> None:
        if batch.records:
            await self._sink.commit(batch.replace(records=[], sweep=None))
            ordinal = batch.position.ordinal
            position = msgspec.structs.replace(batch.position, ordinal=ordinal + 1)
            batch = batch.replace(position=position, expects_ordinal=ordinal)
        await commit(self, core, batch)

    return [(StreamWorker, "_commit", early)]


def _sql(name: str, old: str, new: str) -> Callable[[], list[Change]]:
    """Another statement; `name` may be that of several, by what they are for."""

    def make() -> list[Change]:
        known = getattr(sqlite, name)
        statements = known if isinstance(known, dict) else {"": known}
        assert all(old in text for text in statements.values()), f"{name}: mend the mutation"
        wrong = {use: text.replace(old, new) for use, text in statements.items()}
        # Without its cache, which knows the statement as it was.
        made = sqlite._statement.__wrapped__
        changed = wrong if isinstance(known, dict) else wrong[""]
        return [(sqlite, name, changed), (sqlite, "_statement", made)]

    return make


def _attempt_on_resumed_stream() -> list[Change]:
    start = Alignment.start

    def resumes(self: Alignment, now_us: int) -> str | Start:
        wanted = start(self, now_us)
        return self.position.token or wanted

    return [(Alignment, "start", resumes)]


def _guard_removed() -> list[Change]:
    def sweep_estimated(self: Alignment, _estimate: object) -> None:
        self._estimate_requested = False
        self._move(AlignmentEvent.SWEEP_BEGUN)

    return [(Alignment, "sweep_estimated", sweep_estimated)]


def _sweep_estimate_skipped() -> list[Change]:
    consider = Alignment._consider

    def hasty(self: Alignment, position: Any, now_us: int) -> None:
        due = position.phase is Phase.ALIGNING and self._progress.sweep_due(position, now_us)
        if due and self.position.phase is Phase.ALIGNING:
            self._move(AlignmentEvent.SWEEP_BEGUN)
            position = self.position
        consider(self, position, now_us)

    return [(Alignment, "_consider", hasty)]


def _position_kept_after_failed_commit() -> list[Change]:
    def failed(self: StreamWorker, error: Exception, **_: Any) -> None:
        self._last_error = str(error)
        if isinstance(error, TokenRefusedError) and self._core is not None:
            self._core.token_refused()
        elif isinstance(error, StreamGoneError):
            self._gone = True
        assert isinstance(error, InstepError)

    return [(StreamWorker, "_failed", failed)]


def _realignment_forgotten() -> list[Change]:
    failed = StreamWorker._failed

    def forgets(self: StreamWorker, error: Exception, **named: Any) -> None:
        failed(self, error, **named)
        self._realign_reason = ""

    def realign(self: StreamWorker, reason: str) -> None:
        if self._core is not None:
            self._core.realign(reason)

    return [(StreamWorker, "_failed", forgets), (StreamWorker, "realign", realign)]


def _redelivery_skipped_too_far() -> list[Change]:
    committed = continuity_rules._committed

    def generous(record: Record, position: Any) -> bool:
        known = position.offsets.get(record.partition, -1)
        return committed(record, position) or 0 <= record.offset <= known + 3

    return [(continuity_rules, "_committed", generous)]


def _repetition_within_a_delivery_kept() -> list[Change]:
    last = 1 << 62
    nowhere = defaultdict[str, int](lambda: last)
    return [(sweep_trigger, "_first_indices", lambda _: nowhere)]


def _one_partition_is_enough() -> list[Change]:
    def due(self: PartitionProgress, position: Any, now_us: int) -> bool:
        partitions = self._heard_us.keys() | self.appended_us.keys()
        return not partitions or any(self._passed(p, position, now_us) for p in partitions)

    return [(PartitionProgress, "sweep_due", due)]


def _sweep_at_once() -> list[Change]:
    return [(PartitionProgress, "sweep_due", lambda *_: True)]


def _tombstone_ignored() -> list[Change]:
    return [(Sqlite, "end_entities", lambda *_: 0)]


def _restart_not_noticed() -> list[Change]:
    return [("instep.alignment.continuity", "classify", lambda *_, **__: Continuity.CONTINUED)]


def _new_log_not_noticed() -> list[Change]:
    rooms = ("continuity", "machine")
    return [(f"instep.alignment.{room}", "is_new_log", lambda *_: False) for room in rooms]


def _attempt_not_counted() -> list[Change]:
    def same(*args: Any, **named: Any) -> Any:
        position = new_attempt(*args, **named)
        return msgspec.structs.replace(position, attempt=max(1, args[1].attempt))

    return [("instep.alignment.machine", "new_attempt", same)]


def _pause_taken_for_the_head() -> list[Change]:
    tick = Alignment.tick
    return [(Alignment, "tick", lambda self, now_us, _state=None: tick(self, now_us))]


def _silence_taken_for_the_head() -> list[Change]:
    def due(self: PartitionProgress, _position: Any, now_us: int) -> bool:
        return self.silent_s(now_us) >= 1.0

    return [(PartitionProgress, "sweep_due", due)]


def _dead_connection_taken_for_silence() -> list[Change]:
    return [(PartitionProgress, "listened", lambda *_: None)]


def _pong_within_a_message_taken_for_silence() -> list[Change]:
    note = SignsOfLife.note
    return [(SignsOfLife, "note", lambda self, at_s, **_: note(self, at_s, under_way=False))]


def _durations_by_the_wall_clock() -> list[Change]:
    return [(Environment, "steady", lambda self: self.now)]


def _snapshot_taken_for_the_log() -> list[Change]:
    return [(PartitionProgress, "_in_snapshot", lambda *_: False)]


def _absence_not_measured() -> list[Change]:
    return [
        ("instep.alignment.resume", "retention_s", lambda _stream: None),
        (Alignment, "_lost", lambda *_: False),
    ]


def _takeover_without_proof() -> list[Change]:
    return [("instep.alignment.machine", "same_record", lambda *_: True)]


def _probe_believed_without_a_look() -> list[Change]:
    return [("instep.alignment.machine", "proves_continued", lambda *_: True)]


def _gap_not_noticed() -> list[Change]:
    return [(GapDetector, "missing", lambda *_, **__: "")]


def _silence_proves_everything() -> list[Change]:
    return [(Alignment, "_doubts_silence", lambda *_: False)]


def _one_partition_proves_all() -> list[Change]:
    return [(ContinuityCheck, "begins_all", lambda *_: True)]


def _watermark_of_the_opening_kept() -> list[Change]:
    return [(LagMonitor, "raise_watermark", lambda *_: None)]


def _token_of_a_snapshot_not_sent() -> list[Change]:
    def earlier(stream: Any, position: Any, **named: Any) -> Any:
        begun = new_attempt(stream, position, **named)
        delay_us = int((stream.compaction_delay_s or 0) * 1_000_000)
        return msgspec.structs.replace(begun, watermark_us=named["now_us"] - delay_us)

    return [("tests.instep.alignment.test_resume", "new_attempt", earlier)]


def _back_off_reset_without_progress() -> list[Change]:
    wait_s = ReconnectPacing.wait_s

    def forgetful(self: ReconnectPacing, **named: Any) -> float:
        waits_s = wait_s(self, **named)
        self.failures = 0 if named["reopens"] else self.failures
        return waits_s

    return [(ReconnectPacing, "wait_s", forgetful)]


def _same_again_taken_for_progress() -> list[Change]:
    def ended(self: ReadingProgress, position: Any) -> None:
        self.fruitless = 0 if position.attempt_records or position.offsets else self.fruitless + 1

    return [(ReadingProgress, "ended", ended)]


def _lost_stream_called_aligned() -> list[Change]:
    lost = Alignment._lost

    def forgiving(self: Alignment, now_us: int, oldest_us: int) -> bool:
        phase = self.position.phase
        reopens = lost(self, now_us, oldest_us)
        if self.position.phase is Phase.LOST:
            self._set(phase=phase)
        return reopens

    return [(Alignment, "_lost", forgiving)]


def _far_future_believed() -> list[Change]:
    return [(PlausibilityCheck, name, lambda *_: True) for name in ("believes", "believes_ordered")]


def _hole_ignored() -> list[Change]:
    return [("instep.alignment.continuity", "is_gap", lambda *_: False)]


def _first_of_a_batch_wins() -> list[Change]:
    def first_round(records: Any) -> list[dict[str, Record]]:
        first: dict[str, Record] = {}
        for record in records:
            first.setdefault(record.key, record)
        return [first]

    def last_indexes(keys: Any) -> list[int]:
        return [keys.index(key) for key in dict.fromkeys(keys)]

    return [
        ("instep_sql.entities.entity_rows", "rounds_per_key", first_round),
        ("instep.model.columns", "last_indexes", last_indexes),
    ]


def _sweep_ends_early() -> list[Change]:
    step = sweep.sweep

    def once(*args: Any, **named: Any) -> Any:
        return msgspec.structs.replace(step(*args, **named), done=True)

    return [("instep_sql.entities.commit", "sweep", once)]


def _resumes_at_the_latest() -> list[Change]:
    start = Alignment.start

    def late(self: Alignment, now_us: int) -> str | Start:
        wanted = start(self, now_us)
        return wanted if isinstance(wanted, Start) else Start.LATEST

    return [(Alignment, "start", late)]


def _other_origin_is_the_same_log() -> list[Change]:
    def same(stream: Any, position: Any, **named: Any) -> Any:
        named["new_log"] = False
        return new_attempt(stream, position, **named)

    return [("instep.alignment.machine", "new_attempt", same)]


def _baseline_dated_after_its_sweep() -> list[Change]:
    """Where the provider's clock is set back, what the stream brings then is older than the rows of
    a baseline.
    """
    return [(sweep, "_BASELINE_ROWS", f"{sweep._BASELINE_ROWS} AND 0")]


def _clock_not_looked_at_again() -> list[Change]:
    async def never(_self: StreamWorker) -> bool:
        return False

    return [(StreamWorker, "_clock_was_set_back", never)]


def _clock_error_not_counted() -> list[Change]:
    provider_us = StreamWorker._provider_us

    def late(self: StreamWorker) -> int:
        """What is subtracted for the error of the clock is added before."""
        error_us = self._feed.clock_error_us if self._feed is not None else 0
        return provider_us(self) + error_us

    return [(StreamWorker, "_provider_us", late)]


def _redelivery_taken_for_silence() -> list[Change]:
    """What a reconnection delivers again does not break the silence."""
    receive = Alignment.receive

    def deaf(self: Alignment, chunk: Any, now_us: int) -> Any:
        with patch.object(self._progress, "silence_from", lambda _now_us: None):
            return receive(self, chunk, now_us)

    return [(Alignment, "receive", deaf)]


def _repetition_taken_for_silence() -> list[Change]:
    """What comes once more on one connection does not break the silence."""
    follow = PartitionProgress.follow

    def deaf(self: PartitionProgress, records: Any, *rest: Any) -> Any:
        before = self._last_heard_us, dict(self._heard_us)
        kept = follow(self, records, *rest)
        if not kept:
            self._last_heard_us, self._heard_us = before
        return kept

    return [(PartitionProgress, "follow", deaf)]


def _snapshot_taken_for_a_redelivery() -> list[Change]:
    opened = ContinuityCheck.opened

    def forgets(self: ContinuityCheck, position: Any, **named: Any) -> None:
        opened(self, position, **named | {"snapshot": False})

    return [(ContinuityCheck, "opened", forgets)]


def _time_ahead_taken_for_the_head() -> list[Change]:
    """As if nothing had been read of the log before the attempt, where a time makes it pass."""
    passed = PartitionProgress._passed

    def hasty(self: PartitionProgress, partition: str, position: Any, now_us: int) -> bool:
        barrier = msgspec.structs.replace(position.barrier, offsets={})
        bare = msgspec.structs.replace(position, barrier=barrier)
        at_us = self.appended_us.get(partition, 0)
        goes_by_time = at_us > max(barrier.appended_at_us, self._opened_us)
        return passed(self, partition, bare if goes_by_time else position, now_us)

    return [(PartitionProgress, "_passed", hasty)]


def _opening_known_too_well() -> list[Change]:
    opened = PartitionProgress.opened

    def exactly(self: PartitionProgress, position: Any, now_us: int, **_: Any) -> None:
        opened(self, position, now_us)

    return [(PartitionProgress, "opened", exactly)]


def _latest_asked_for_again() -> list[Change]:
    refused = Alignment.token_refused

    def forgets(self: Alignment) -> None:
        stream = self.stream
        refused(self)
        self.stream = stream

    return [(Alignment, "token_refused", forgets)]


_LINEAGE: Final = "instep_entity.lineage = excluded.lineage AND "
_NEWER: Final = 'instep_entity."offset" > excluded."offset"'

MUTATIONS: Final[dict[str, Callable[[], list[Change]]]] = {
    "sweep on rewind": _sweep_on_rewind,
    "token before data": _token_before_data,
    "unmarked equal record": _sql("_UPSERTS", _NEWER, _NEWER.replace(">", ">=")),
    "sweep across lineage": _sql("_UPSERTS", _LINEAGE, ""),
    "newer record overwritten": _sql("_UPSERTS", _NEWER, "0"),
    "end across lineage": _sql("_END", "lineage = ?", "(1 OR lineage = ?)"),
    "newer record ended": _sql("_END", '"offset" > ?', '("offset" > ? AND 0)'),
    "mark not written": _sql("_UPSERTS", "attempt = excluded.attempt,", ""),
    "attempt on a resumed stream": _attempt_on_resumed_stream,
    "guard removed": _guard_removed,
    "sweep estimate skipped": _sweep_estimate_skipped,
    "position kept after a failed commit": _position_kept_after_failed_commit,
    "realignment forgotten": _realignment_forgotten,
    "redelivery skipped too far": _redelivery_skipped_too_far,
    "one partition is enough": _one_partition_is_enough,
    "sweep at once": _sweep_at_once,
    "tombstone ignored": _tombstone_ignored,
    "restart not noticed": _restart_not_noticed,
    "new log not noticed": _new_log_not_noticed,
    "attempt not counted": _attempt_not_counted,
    "pause taken for the head": _pause_taken_for_the_head,
    "dead connection taken for silence": _dead_connection_taken_for_silence,
    "Pong within a message taken for silence": _pong_within_a_message_taken_for_silence,
    "durations by the wall clock": _durations_by_the_wall_clock,
    "absence not measured": _absence_not_measured,
    "hole ignored": _hole_ignored,
    "probe believed without a look": _probe_believed_without_a_look,
    "gap not noticed": _gap_not_noticed,
    "silence proves everything": _silence_proves_everything,
    "first of a batch wins": _first_of_a_batch_wins,
    "sweep ends early": _sweep_ends_early,
    "resumes at the latest": _resumes_at_the_latest,
    "other origin, same lineage": _other_origin_is_the_same_log,
}
"""Name to what it changes: object or module, attribute, new value."""


def _forgotten_unread_not_missed() -> list[Change]:
    lost = LagMonitor.lost

    def of_a_log(self: LagMonitor, position: Position, oldest_us: int, now_us: int) -> str:
        reason = lost(self, position, oldest_us, now_us)
        return "" if self._stream.mode is Mode.BASELINE else reason

    return [(LagMonitor, "lost", of_a_log)]


def _opening_forgotten() -> list[Change]:
    started = Alignment.start

    def by_the_stream(self: Alignment, now_us: int) -> Any:
        newest = from_the_start(self.stream) is Start.LATEST
        self.position = msgspec.structs.replace(self.position, opened_at_newest=newest)
        return started(self, now_us)

    return [(Alignment, "start", by_the_stream)]


def _address_of_an_end_not_read() -> list[Change]:
    return [(key_reconciliation._Rows, "_at", lambda _self, _key: [])]


def _address_of_an_end_tells_no_key() -> list[Change]:
    return [(key_reconciliation._Row, "is_named", lambda _self, record: bool(record.uuid))]


def _another_place_taken_for_a_move() -> list[Change]:
    of = key_reconciliation._Rows.of

    def moved(self: Any, record: Record) -> list[Any]:
        found = of(self, record)
        rows = [row for row in self.by_uuid.get(record.uuid, ()) if record.token]
        return found or [row for row in rows if len(rows) == 1 and not row.claimed]

    return [(key_reconciliation._Rows, "of", moved)]


def _place_of_a_baseline_not_read() -> list[Change]:
    of = key_reconciliation._Rows.of

    def by_key(self: Any, record: Record) -> list[Any]:
        row = self.by_key.get(record.key)
        return [row] if row is not None and not record.token else of(self, record)

    return [(key_reconciliation._Rows, "of", by_key)]


def _in_world_of(drawn_by: int, seed: int, *, as_first: bool = False) -> None:
    """Run a seed with the log and the faults that a kept seed has drawn."""
    log, faults = drawn(random.Random(drawn_by), drawn_by)
    if not as_first:
        log, faults = further(log, faults, drawn_by)
    simulate(seed, options=(log, faults))


def _in_memory(
    stream: StreamInfo | None = None, **options: Any
) -> AbstractAsyncContextManager[Stage]:
    return stage(stream=stream, **options)


def _ends_by_address() -> None:
    test = test_key_reconciliation
    asyncio.run(
        test.test_a13_the_end_of_what_a_baseline_knew_hides_no_statement_of_another(_in_memory)
    )


def _rows_by_place() -> None:
    test = test_key_reconciliation
    asyncio.run(test.test_a13_a_statement_of_a_baseline_goes_to_the_row_of_its_place(_in_memory))


CAUGHT_BY_A_TEST: Final[dict[str, tuple[Callable[[], list[Change]], Callable[[], object]]]] = {
    "lost stream called aligned": (
        _lost_stream_called_aligned,
        test_machine_lag.test_a8_3_17_3_after_the_last_realignment_an_end_may_be_missed_and_that_is_said,
    ),
    "offset of the far future believed": (
        _far_future_believed,
        lambda: test_plausibility.test_a9_what_is_far_ahead_pins_no_entity(True, True, False),
    ),
    "time of the far future believed": (
        _far_future_believed,
        test_plausibility.test_a9_a_log_whose_clock_is_ahead_comes_to_its_sweep_by_silence_alone,
    ),
    "restart taken over that was a rewind": (
        _takeover_without_proof,
        test_machine_continuity.test_a2_a_log_that_does_not_reach_back_is_opened_again,
    ),
    "one partition proves the beginning of all": (
        _one_partition_proves_all,
        test_machine.test_a2_a_partition_that_stays_silent_has_not_shown_where_it_begins,
    ),
    "what an attempt has read not counted as known": (
        _watermark_of_the_opening_kept,
        test_machine_lag.test_a8_right_after_an_alignment_it_is_known_what_the_store_may_lack,
    ),
    "token of a snapshot not sent": (
        _token_of_a_snapshot_not_sent,
        test_resume.test_3_19_2_a_snapshot_shows_nothing_that_ended_before_it,
    ),
    "back-off reset without progress": (
        _back_off_reset_without_progress,
        test_retry.test_a16_only_a_fruitful_connection_resets_the_back_off,
    ),
    "reading the same again taken for progress": (
        _same_again_taken_for_progress,
        test_reading_progress.test_a16_to_read_the_same_again_is_no_progress,
    ),
    "latest asked for again and again": (
        _latest_asked_for_again,
        test_machine_lag.test_5_10_1_a_stream_that_cannot_be_opened_at_its_newest_record_is_at_its_oldest,
    ),
    "silence taken for the head": (
        _silence_taken_for_the_head,
        lambda: _in_world_of(285, 58, as_first=True),
    ),
    "snapshot taken for the log": (
        _snapshot_taken_for_the_log,
        lambda: test_kept_seeds.test_a_snapshot_that_changes_under_way_is_read_to_its_end(22),
    ),
    "baseline dated after its sweep": (
        _baseline_dated_after_its_sweep,
        lambda: test_kept_seeds.test_a_provider_that_sets_its_clock_back_hides_no_change(5),
    ),
    "clock not looked at again": (
        _clock_not_looked_at_again,
        lambda: test_kept_seeds.test_a_provider_that_sets_its_clock_back_hides_no_change(1),
    ),
    "clock error not counted": (
        _clock_error_not_counted,
        lambda: test_kept_seeds.test_a_baseline_is_dated_as_early_as_the_clock_may_be(0),
    ),
    "repetition within a delivery kept": (
        _repetition_within_a_delivery_kept,
        test_sweep_trigger.test_a_record_that_one_delivery_repeats_is_dropped_with_an_end_between,
    ),
    "redelivery taken for silence": (
        _redelivery_taken_for_silence,
        lambda: test_kept_seeds.test_what_is_delivered_again_is_no_silence(72),
    ),
    "repetition taken for silence": (
        _repetition_taken_for_silence,
        test_sweep_trigger.test_what_comes_once_more_is_no_silence,
    ),
    "opening known too well": (
        _opening_known_too_well,
        test_sweep_trigger.test_a_record_that_may_be_older_than_the_opening_does_not_pass,
    ),
    "time ahead taken for the head": (
        _time_ahead_taken_for_the_head,
        test_sweep_trigger.test_no_time_shows_the_head_before_what_was_read_of_the_log_once,
    ),
    "address of an end not read": (_address_of_an_end_not_read, _ends_by_address),
    "address of an end tells no key": (_address_of_an_end_tells_no_key, _ends_by_address),
    "forgotten unread not missed": (
        _forgotten_unread_not_missed,
        test_machine_lag.test_a8_a15_records_that_a_log_may_have_forgotten_unread_call_for_a_baseline,
    ),
    "opening forgotten between two connections": (
        _opening_forgotten,
        test_machine_lag.test_a14_whoever_goes_on_with_an_attempt_knows_where_it_was_opened,
    ),
    "what goes back behind a baseline kept": (
        lambda: [(PartitionProgress, "_shown_before", lambda *_: False)],
        test_machine_lag.test_a14_what_goes_back_behind_the_baseline_is_dropped,
    ),
    "another place taken for a move": (
        _another_place_taken_for_a_move,
        lambda: _in_world_of(68, 3),
    ),
    "place of a baseline not read": (
        _place_of_a_baseline_not_read,
        _rows_by_place,
    ),
    "snapshot taken for a redelivery": (
        _snapshot_taken_for_a_redelivery,
        test_continuity.test_3_19_2_a_snapshot_that_begins_with_our_last_record_is_in_doubt,
    ),
}
"""Mistakes that a drawn seed meets too seldom, each with the test or kept seed that finds it."""


@contextmanager
def applied(name: str) -> Iterator[None]:
    """The SDK with this mistake in it."""
    with ExitStack() as stack:
        make = MUTATIONS[name] if name in MUTATIONS else CAUGHT_BY_A_TEST[name][0]
        for target, attribute, value in make():
            if isinstance(target, str):
                stack.enter_context(patch(f"{target}.{attribute}", value))
            else:
                stack.enter_context(patch.object(target, attribute, value))
        yield


def seeds_until_caught(name: str, most: int) -> int | None:
    """How many seeds, from 0 on, it takes to find this mistake; None: more than `most`."""
    with applied(name):
        for seed in range(most):
            try:
                simulate(seed)
            except SeedFailedError:
                return seed + 1
    return None
