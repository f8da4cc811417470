"""When a snapshot is over, and when a sweep is due (A5, A9, A14, A21), in every small case.

The references look at the whole history anew, record by record. Times are seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from instep.alignment.settings import AlignmentSettings
from instep.alignment.sweep_trigger import PartitionProgress, SnapshotEndDetector
from instep.model.position import UNREACHABLE_OFFSET, Phase, Position, SweepBarrier, recent_digest
from instep.model.records import RecordHeader, RecordType
from instep.model.streams import Mode, StreamInfo
from tests.explore.decisions.compare import columns, every, same, sequences

__all__ = ["ends_of_snapshots", "shown_records", "sweeps_behind_snapshots", "sweeps_due"]

_US: Final = 1_000_000
_OPENED_S: Final = 100


class _Seen(NamedTuple):
    """A record, as the references know it."""

    partition: str
    offset: int
    at_s: int
    ends: bool = False
    token: str = ""

    @property
    def header(self) -> RecordHeader:
        kind = RecordType.TOMBSTONE if self.ends else RecordType.CREATE_UPDATE
        token = self.token or f"{self.partition}.{self.offset}.{self.at_s}"
        at_us = self.at_s * _US
        return RecordHeader(
            "s", "k", kind, token, at_us, partition=self.partition, offset=self.offset
        )


_Delivery = tuple[_Seen, ...]


def _columns(records: _Delivery) -> Sequence[RecordHeader] | None:
    return columns([one.header for one in records])


# -- the end of a snapshot -------------------------------------------------------------------------

_LATE_S: Final = 3
_SHOWN: Final = [
    _Seen("p", 4, 97),
    _Seen("p", 5, 98),
    _Seen("p", 6, 100),
    _Seen("p", 7, 101),
    _Seen("p", 8, 102),
    _Seen("p", 9, 102, ends=True),
    _Seen("p", 3, 100, ends=True),
    _Seen("q", 0, 102),
]
_AWAY: Final = _Seen("p", 2, 102)
_PAGES: Final[list[_Delivery]] = [
    *((one,) for one in _SHOWN),
    *((_SHOWN[at], _SHOWN[then]) for at, then in ((0, 1), (1, 3), (3, 4), (4, 3), (1, 2), (3, 5))),
    *((_SHOWN[at], _SHOWN[then]) for at, then in ((3, 3), (7, 7), (3, 0))),
    (_SHOWN[4], _AWAY, _SHOWN[5]),
    (_Seen("q", 1, 102), _SHOWN[7]),
]


class _Snapshot:
    """What the records of one opening show of its snapshot."""

    def __init__(self, error_s: int, late_s: int) -> None:
        self.before_s = _OPENED_S - error_s - 1
        self.late_s = late_s
        self.opened_s = self.old_s = _OPENED_S
        self.ended = self.begins_anew = False
        self.came: list[_Seen] = []
        self.while_open: list[_Seen] = []
        self.in_log: dict[str, int] = {}

    def follow(self, records: _Delivery, now_s: int, *, is_over: bool) -> None:
        self.ended = self.ended or is_over
        for one in records:
            # Twice in a row is a frame that was sent twice.
            twice = bool(self.came) and self.came[-1] == one
            again = one in self.came and one.at_s < self.before_s and not twice
            self.begins_anew = self.begins_anew or again
            self.came.append(one)
        if self.ended:
            for one in records:
                back = 0 <= one.offset < self.in_log.get(one.partition, -1)
                self.begins_anew = self.begins_anew or back
                self.in_log[one.partition] = one.offset
            return
        for one in records:
            before = self.while_open
            since = one.at_s > self.opened_s
            first = next((seen for seen in before if seen.at_s > self.opened_s), None)
            if since and before:
                self.ended = self.ended or one.ends or (one == first and one != before[-1])
            if not since or not before or one.at_s < now_s - self.late_s:
                self.old_s = now_s
            before.append(one)


def ends_of_snapshots() -> int:
    """Three deliveries of one or two records, one by one or in columns, 4 seconds apart."""
    cases = 0
    for history in sequences(_PAGES, 3):
        for error_s, over_at in ((0, None), (1, None), (0, 0), (0, 1)):
            cases += 1
            _snapshot(history, error_s, over_at, in_columns=False)
            if all(_columns(one) is not None for one in history):
                _snapshot(history, error_s, over_at, in_columns=True)
    return cases


def _snapshot(
    history: tuple[_Delivery, ...], error_s: int, over_at: int | None, *, in_columns: bool
) -> None:
    found = SnapshotEndDetector(_OPENED_S * _US, _LATE_S * _US, error_us=error_s * _US)
    plain = _Snapshot(error_s, _LATE_S)
    for number, records in enumerate(history):
        now_s, is_over = 101 + 4 * number, number == over_at
        given: Any = _columns(records) if in_columns else [one.header for one in records]
        found.follow(given, now_s * _US, is_over=is_over)
        plain.follow(records, now_s, is_over=is_over)
        told = found.ended, found.begins_anew, found.old_us
        expected = plain.ended, plain.begins_anew, plain.old_s * _US
        same(told, expected, history, error_s, over_at, in_columns)


def shown_records() -> int:
    """A thousand records of a snapshot are remembered."""
    most = 1_000
    for count in (most - 1, most, most + 1):
        found = SnapshotEndDetector(_OPENED_S * _US, _US)
        found.follow([_Seen("p", n, 50).header for n in range(count)], 101 * _US)
        for again in (0, count - 1):
            at_end = SnapshotEndDetector(_OPENED_S * _US, _US)
            at_end.follow([_Seen("p", n, 50).header for n in range(count)], 101 * _US)
            at_end.follow([_Seen("q", 0, 50).header, _Seen("p", again, 50).header], 102 * _US)
            same(at_end.begins_anew, again < most, count, again)
        same(found.begins_anew, False, count)
    return 3


# -- when a sweep is due ---------------------------------------------------------------------------

_SETTINGS: Final = AlignmentSettings(
    quiet_s=2.0, unreached_quiet_s=5.0, empty_confirm_s=3.0, assumed_compaction_delay_s=4.0
)
_DELAY_S: Final = 10
_AHEAD_S: Final = 60


def _position(**values: Any) -> Position:
    return Position(phase=Phase.ALIGNING, attempt_started_at_us=_OPENED_S * _US, **values)


_GOAL: Final = SweepBarrier("b", 90 * _US, {"p": 5}, {"p": 90 * _US})
_BOTH: Final = SweepBarrier("b", 103 * _US, {"p": 5, "q": 7}, {"p": 90 * _US, "q": 103 * _US})
_NOWHERE: Final = SweepBarrier("b", 0, {"p": UNREACHABLE_OFFSET}, {})
_RECENT: Final = recent_digest("recent")
_POSITIONS: Final = [
    _position(attempt=1),
    _position(attempt=2),
    _position(attempt=1, records=3),
    _position(attempt=2, records=3),
    _position(attempt=2, records=3, attempt_records=1, barrier=_GOAL),
    _position(attempt=2, records=3, attempt_records=1, barrier=_BOTH, recent=_RECENT),
    _position(attempt=2, records=3, attempt_records=1, barrier=_NOWHERE),
    _position(attempt=1, records=3, attempt_records=1, barrier=_NOWHERE),
    _position(attempt=2, barrier=_GOAL, opened_at_newest=True),
    _position(
        attempt=2, records=3, attempt_records=1, barrier=_GOAL, token="ours", offsets={"p": 4},
        appended_us={"p": 89 * _US}, appended_at_us=89 * _US,
    ),
]  # fmt: skip
_FEW: Final = [
    _Seen("p", 4, 95),
    _Seen("p", 5, 101),
    _Seen("p", 6, 102),
    _Seen("p", 6, 103),
    _Seen("p", 3, 98, token="recent"),
    _Seen("q", 8, 104),
    _Seen("p", -1, 102),
    _Seen("p", -1, 97, token="ours"),
    _Seen("p", 7, 300),
    _Seen("q", 0, 96),
]


def sweeps_due() -> int:
    """One or two deliveries of one or two records, and silences of several lengths behind them."""
    cases = 0
    deliveries: list[_Delivery] = [(one,) for one in _FEW]
    pairs = ((1, 2), (2, 0), (2, 5), (3, 4), (6, 7), (8, 2), (2, 9), (6, 6))
    deliveries += [(_FEW[at], _FEW[then]) for at, then in pairs]
    deliveries.append((_FEW[1], _FEW[1], _FEW[0], _FEW[1]))
    histories: list[tuple[_Delivery, ...]] = [(), *sequences(deliveries, 2)]
    for case in every(
        position=_POSITIONS,
        mode=(Mode.LOG, Mode.BASELINE),
        error_s=(0, 1),
        history=histories,
    ):
        cases += 1
        _trigger(**case)
    for position, history in product(_POSITIONS, sequences(deliveries, 1)):
        cases += 1
        _trigger(position=position, mode=Mode.LOG, error_s=0, history=history, declared=False)
    return cases


def sweeps_behind_snapshots() -> int:
    """The same where the log may begin with a snapshot (TR-548 3.19.2)."""
    cases = 0
    positions = [
        _position(attempt=2, records=3, attempt_records=1, barrier=_GOAL),
        replace(_position(attempt=2, records=3, attempt_records=1), phase=Phase.SWEEPING),
    ]
    for position, mode, error_s, later, history in product(
        positions, (Mode.LOG, Mode.BASELINE), (0, 1), (False, True), sequences(_PAGES, 2)
    ):
        cases += 1
        _trigger(
            position=position,
            mode=mode,
            error_s=error_s,
            history=history,
            snapshot=True,
            sweeps_later=later,
        )
    return cases


class _Reference:
    """What the rules say of the records of one opening."""

    def __init__(self, position: Position, error_s: int, *, goes_back: bool, delay_s: int) -> None:
        """`goes_back`: whether an offset that goes back is the place of the log."""
        self.position, self.error_s, self.is_log = position, error_s, True
        self.keeps_back, self.delay_s = goes_back, delay_s
        self.snapshot: _Snapshot | None = None
        self.opened_s = _OPENED_S + error_s
        self.offsets = dict(position.offsets)
        self.last_s: dict[str, int] = {}
        self.heard_s = dict.fromkeys({*position.barrier.offsets, *position.offsets}, _OPENED_S)
        self.heard_last_s = _OPENED_S
        self.ahead: set[str] = set()
        self.newest_s = self.oldest_s = 0
        self.goes_back = False
        self.told = {"offset-backwards": 0, "append-time-backwards": 0, "append-time-ahead": 0}
        self.attested = True
        self.until_s = 1 << 40
        self.since_s = 0

    def follow(self, records: _Delivery, now_s: int) -> list[_Seen]:
        position, kept = self.position, []
        newest_s, back, away = position.appended_at_us // _US, False, 0
        self.oldest_s, self.heard_last_s, self.attested = now_s, now_s, True
        tokens: list[str] = []
        # What cannot be true is mended first, each by the one before it in its partition (A9).
        before = {name: at_us // _US for name, at_us in position.appended_us.items()} | self.last_s
        mended_s = []
        for one in records:
            at_s, name = one.at_s, one.partition
            if at_s > now_s + _AHEAD_S:
                alone = name in before and name not in self.ahead
                at_s = min(now_s, before[name]) if alone else now_s
                self.ahead.add(name)
                self.told["append-time-ahead"] += 1
            else:
                self.ahead.discard(name)
            before[name] = at_s
            mended_s.append(at_s)
        for one, at_s in zip(records, mended_s, strict=True):
            name, token = one.partition, one.header.token
            known = self.offsets.get(name, -1)
            again = token in tokens or token == "recent"
            tokens.append(token)
            if 0 <= one.offset < known:
                early_s = _OPENED_S - self.error_s
                if (again and (tokens.count(token) > 1 or position.recent)) or (
                    position.opened_at_newest and at_s < early_s
                ):
                    continue
                away += 1
                if self.keeps_back:
                    self.offsets[name] = one.offset
            elif one.offset > known:
                self.offsets[name] = one.offset
                self.oldest_s = min(self.oldest_s, at_s)
            elif one.offset < 0 and token != position.token:
                self.oldest_s = min(self.oldest_s, at_s)
            back = back or (one.offset < 0 and one.at_s < newest_s)
            newest_s = max(newest_s, one.at_s)
            self.told["append-time-backwards"] += one.at_s < self.last_s.get(name, 0)
            self.last_s[name] = one.at_s
            kept.append(one)
        self.goes_back = back and not away
        self.told["offset-backwards"] += away
        newest_s = max(self.last_s.values(), default=0)
        self.newest_s = max(self.newest_s, min(newest_s, now_s) if self.ahead else newest_s)
        heard = {one.partition for one in records}
        self.heard_s |= dict.fromkeys(heard, now_s)
        if any(self.last_s.get(name, 0) <= self.opened_s for name in heard):
            self.heard_s = dict.fromkeys(self.heard_s, now_s)
        return kept

    def silent_s(self, since_s: int, now_s: int) -> int:
        return min(now_s, self.until_s) - max(since_s, self.since_s)

    def caught_up(self, now_s: int) -> bool:
        if not self.heard_s:
            return self.silent_s(self.heard_last_s, now_s) >= 2
        return all(
            self.silent_s(heard_s, now_s) >= 2
            or (self.last_s.get(name, 0) > self.opened_s and name not in self.ahead)
            for name, heard_s in self.heard_s.items()
        )

    def due(self, now_s: int) -> bool:
        position = self.position
        silent_s = self.silent_s(self.heard_last_s, now_s)
        if position.opened_at_newest:
            return True
        if self.is_log and position.records and not position.attempt_records:
            return silent_s >= (3 if self.attested else 5)
        if not self.heard_s:
            nothing_before = position.attempt == 1 or not position.records
            return silent_s >= (2 if nothing_before and self.attested else 5)
        snapshot = self.snapshot
        if snapshot is not None and not snapshot.ended and silent_s < 2:
            old_s = self.silent_s(snapshot.old_s, now_s)
        else:
            old_s = 5
        return old_s >= 5 and all(self._passed(name, now_s) for name in self.heard_s)

    def _passed(self, name: str, now_s: int) -> bool:
        goal, at_s = self.position.barrier, self.last_s.get(name, 0)
        known = goal.offsets.get(name)
        place = self.offsets.get(name, -1)
        reachable = known is not None and known != UNREACHABLE_OFFSET
        short_of = reachable and place < (known or 0)
        newer = at_s > self.opened_s and at_s > goal.appended_at_us // _US
        young = now_s + self.error_s - at_s < self.delay_s and name not in self.ahead
        if newer and young and not short_of:
            return True
        reached = self.position.attempt == 1
        reached = reached or 0 < goal.appended_at_us // _US <= at_s
        reached = reached or (reachable and not short_of)
        enough_s = 2 if reached and self.attested else 5
        return self.silent_s(self.heard_s[name], now_s) >= enough_s


def _trigger(
    *,
    position: Position,
    mode: Mode,
    error_s: int,
    history: tuple[_Delivery, ...],
    declared: bool = True,
    snapshot: bool = False,
    sweeps_later: bool = False,
) -> None:
    """`declared`: whether the compaction delay is. `sweeps_later`: from the second delivery on."""
    stream = StreamInfo(
        id="s",
        origin="o",
        kind="k",
        mode=mode,
        compaction_delay_s=_DELAY_S if declared else None,
        may_start_with_snapshot=snapshot,
    )
    found = PartitionProgress(stream, _SETTINGS)
    same((found.goes_back, found.attested, found.begins_anew), (False, True, False))
    found.opened(position, _OPENED_S * _US, error_s * _US)
    is_log = mode is Mode.LOG
    plain = _Reference(
        position, error_s, goes_back=is_log and not snapshot, delay_s=_DELAY_S if declared else 4
    )
    plain.is_log = is_log
    if snapshot and position.phase is Phase.ALIGNING:
        plain.snapshot = _Snapshot(2 * error_s - error_s, 2)
        plain.snapshot.opened_s = plain.snapshot.old_s = _OPENED_S + error_s
    offsets = dict(position.offsets)
    now_s = 101
    given = position, mode, error_s, history
    deviations: dict[str, int] = {}
    for number, records in enumerate(history):
        now_s = 104 + number
        headers = [one.header for one in records]
        by_columns = _columns(records) if number and len(records) == 2 else None
        if sweeps_later and number:
            position = replace(position, phase=Phase.SWEEPING)
        kept = found.follow(
            headers if by_columns is None else by_columns,
            offsets,
            position,
            deviations,
            now_s * _US,
        )
        expected = plain.follow(records, now_s)
        if plain.snapshot is not None:
            is_over = position.phase is not Phase.ALIGNING
            plain.snapshot.follow(records, now_s, is_over=is_over)
            same(found.begins_anew, plain.snapshot.begins_anew, "begins anew", given)
        else:
            same(found.begins_anew, False, "no snapshot", given)
        same([one.token for one in kept], [one.header.token for one in expected], "kept", given)
        same(offsets, plain.offsets, "offsets", given)
        told = {name: count for name, count in plain.told.items() if count}
        same(deviations, told, "deviations", given)
        times = found.oldest_us, found.newest_us, found.goes_back, found.attested
        expected_times = plain.oldest_s * _US, plain.newest_s * _US, plain.goes_back, True
        same(times, expected_times, "times", given)
        found.attested = False
    later = _moved(position, offsets)
    plain.position = later
    for wait_s, attested, window in product((0, 1, 2, 3, 5, 9), (True, False), _WINDOWS):
        asked_s = now_s + wait_s
        found.attested = plain.attested = attested
        plain.since_s, plain.until_s = window
        found.listened(window[0] * _US, window[1] * _US)
        due = found.sweep_due(later, asked_s * _US), found.caught_up(asked_s * _US)
        expected_due = plain.due(asked_s), plain.caught_up(asked_s)
        same(due, expected_due, "due", wait_s, attested, window, given)


_WINDOWS: Final = ((0, 1 << 40), (103, 1 << 40), (0, 106))


def _moved(position: Position, offsets: dict[str, int]) -> Position:
    return _position(
        **{name: getattr(position, name) for name in (
            "attempt", "records", "attempt_records", "barrier", "opened_at_newest", "token",
            "appended_at_us",
        )},
        offsets=dict(offsets),
    )  # fmt: skip
