"""The rules about the order of a log, and about what its readings must hold (TR-548 3.6, 3.8, 5.8).

What was read over one connection is compared with what was read over another: a record that a later
reading brings was in the log all the time, since a log is only ever appended to. So nothing is
concluded from a gap in the offsets alone: compaction leaves gaps.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import inf
from typing import Any, Final, NamedTuple

from instep.conformance import HELD, NOTHING, Rule, RuleBroken, RuleLevel, Verdict
from instep_tapi.conformance.making import clauses, log_judge
from instep_tapi.conformance.observations import (
    ConnectionSeen,
    DeclaredType,
    Delivered,
    Log,
    Place,
    Reading,
    RecordSeen,
)
from instep_tapi.facts.stream_profile import TAPI_2_1_3

__all__ = ["RULES"]

_CHAPTER: Final = "The log and its readings"
_SECOND_US: Final = 1_000_000
_MARGIN_US: Final = 2_000_000
"""How far a time of ours and one of the provider's may be apart: a Date has whole seconds."""
_MAX_SKIPPED: Final = 1_000
_MAX_KEYS: Final = 100_000


class _Order:
    """Judges that a partition is read in the order of its offsets: what was passed over does not
    come afterwards on the same connection. Going back as a whole is no fault: a provider may
    restart a stream (5.8).
    """

    def __init__(self) -> None:
        self._last: dict[tuple[int, str], RecordSeen] = {}
        self._skipped: dict[tuple[int, str], list[tuple[int, int, RecordSeen]]] = {}

    def __call__(self, seen: RecordSeen | ConnectionSeen) -> Sequence[Verdict]:
        if isinstance(seen, ConnectionSeen):
            for kept in (self._last, self._skipped):
                for name in [name for name in kept if name[0] == seen.id]:
                    del kept[name]
            return NOTHING
        if seen.place is None or not seen.connection.in_order:
            return NOTHING
        partition, offset = seen.place
        name = (seen.connection.id, partition)
        highest = self._last.get(name)
        if highest is None or highest.place is None:
            self._last[name] = seen
            return NOTHING
        skipped = self._skipped.setdefault(name, [])
        top = highest.place[1]
        if offset > top:
            if offset > top + 1 and len(skipped) < _MAX_SKIPPED:
                skipped.append((top, offset, seen))
            self._last[name] = seen
            return HELD
        index = bisect_right(skipped, offset, key=lambda gap: gap[0]) - 1
        if index >= 0 and skipped[index][0] < offset < skipped[index][1]:
            passed = skipped[index][2]
            return (
                RuleBroken(
                    f"offset {offset} came after offset {skipped[index][1]}, which passed it over",
                    (passed.evidence, seen.evidence),
                ),
            )
        return NOTHING


class _AppendTimes:
    """Judges that append times grow with the offsets of a partition."""

    def __init__(self) -> None:
        self._highest: dict[tuple[int, str], RecordSeen] = {}

    def __call__(self, seen: RecordSeen | ConnectionSeen) -> Sequence[Verdict]:
        if isinstance(seen, ConnectionSeen):
            for name in [name for name in self._highest if name[0] == seen.id]:
                del self._highest[name]
            return NOTHING
        if seen.place is None or seen.append_us is None or not seen.connection.in_order:
            return NOTHING
        name = (seen.connection.id, seen.place[0])
        before = self._highest.get(name)
        if before is None or before.place is None or before.append_us is None:
            self._highest[name] = seen
            return NOTHING
        if seen.place[1] <= before.place[1]:
            return NOTHING
        self._highest[name] = seen
        if seen.append_us >= before.append_us - _SECOND_US:
            return HELD
        earlier_s = (before.append_us - seen.append_us) / 1e6
        reason = (
            f"offset {seen.place[1]} was appended {earlier_s:.1f} s before offset {before.place[1]}"
        )
        return (RuleBroken(reason, (before.evidence, seen.evidence)),)


class _Partition:
    """Judges that all records of an entity are in one partition."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, str], RecordSeen] = {}

    def __call__(self, seen: RecordSeen) -> Sequence[Verdict]:
        if seen.place is None or not seen.key:
            return NOTHING
        name = (seen.connection.id, seen.key)
        before = self._seen.get(name)
        if before is None or before.place is None:
            if len(self._seen) >= _MAX_KEYS:
                del self._seen[next(iter(self._seen))]
            self._seen[name] = seen
            return NOTHING
        if before.place[0] == seen.place[0]:
            return HELD
        reason = f"records of {seen.key} are in {before.place[0]!r} and in {seen.place[0]!r}"
        return (RuleBroken(reason, (before.evidence, seen.evidence)),)


# -- readings that are compared -------------------------------------------------------------------


class _Pair(NamedTuple):
    """Two readings of one log, the earlier and the later one."""

    log: Log
    type: DeclaredType
    earlier: Reading
    later: Reading


def _pairs(log: Log, *, compacted: bool = False, continued: bool = False) -> Iterator[_Pair]:
    """The pairs of readings of one log. Where no record is in both, it may be another log, unless
    (`continued`) the later one goes on right behind the offsets of the earlier one.
    """
    type_ = log.declared.type if log.declared else None
    if type_ is None or (type_.storage == "COMPACTED" and not type_.compacts):
        return
    if compacted and not type_.compacts:
        return
    whole = [one for one in log.readings if not one.partial and one.records]
    for index, later in enumerate(whole):
        tokens = {one.token for one in later.records.values()}
        for earlier in whole[:index]:
            same = any(one.token in tokens for one in earlier.records.values())
            if same or (continued and _goes_on(earlier, later)):
                yield _Pair(log, type_, earlier, later)


def _goes_on(earlier: Reading, later: Reading) -> bool:
    """Whether the offsets of the later reading go on right behind those of the earlier one: a log
    that was made anew states all its entities first.
    """
    before, after = earlier.offsets(), later.offsets()
    return bool(after) and all(
        partition in before and 0 < came[0] - before[partition][-1] < _FEW_RECORDS
        for partition, came in after.items()
    )


def _skipped(log: Log) -> Iterator[Verdict]:
    """Records that a later reading has, and that an earlier one passed over in its middle."""
    for pair in _pairs(log):
        offsets = pair.earlier.offsets()
        for place, record in pair.later.records.items():
            came = offsets.get(place[0], [])
            if not came or not came[0] < place[1] < came[-1]:
                continue
            if place in pair.earlier.records:
                if pair.earlier.records[place].token == record.token:
                    yield HELD[0]
                continue
            behind = pair.earlier.records[(place[0], came[bisect_right(came, place[1])])]
            if behind.at_us > pair.later.sent_us(record):
                continue  # it may have been compacted away in between
            yield RuleBroken(
                f"offset {place[1]} was not sent on connection {pair.earlier.connection.id}, which"
                f" went on to offset {behind.place[1]}",
                (behind.evidence, record.evidence),
            )


def _missed_at_start(
    log: Log, due: Callable[[_Pair, Delivered], bool], reason: str
) -> Iterator[Verdict]:
    """Records that a later reading has, that an earlier one had to begin with or before."""
    for pair in _pairs(log):
        reading = pair.earlier
        offsets = reading.offsets()
        for place, record in pair.later.records.items():
            came = offsets.get(place[0], [])
            if not came or not due(pair, record):
                continue
            if place in reading.records:
                yield HELD[0]
            elif place[1] < came[0]:
                # What has a lower offset was in the log before the first record that came.
                first = reading.records[(place[0], came[0])]
                if first.at_us > pair.later.sent_us(record):
                    continue  # it may have been compacted away in between
                yield RuleBroken(
                    f"{reason}: it began at offset {came[0]}, and offset {place[1]} was in the log",
                    (reading.connection.evidence, first.evidence, record.evidence),
                )


def _from_oldest(log: Log) -> Iterator[Verdict]:
    def due(pair: _Pair, _: Delivered) -> bool:
        return not pair.earlier.connection.start

    yield from _missed_at_start(log, due, "a connection without token did not begin at the oldest")
    # The other way round: what came before is young enough to be in the log for certain.
    for pair in _pairs(log, compacted=True, continued=True):
        later = pair.later
        if later.connection.start:
            continue
        keep_us = (pair.type.delay_s or 0) * 0.9e6 - _MARGIN_US
        offsets = later.offsets()
        for place, record in pair.earlier.records.items():
            came = offsets.get(place[0], [])
            if not came:
                continue
            # A slow reader comes to it long after it has connected.
            first = later.records[(place[0], came[0])]
            passed_us = first.at_us + later.ahead_us
            young = 0 <= passed_us - record.append_us < keep_us
            if young and place[1] < came[0] and place not in later.records:
                yield RuleBroken(
                    "a connection without token did not begin at the oldest record: it began at"
                    f" offset {came[0]}, and offset {place[1]} was in the log",
                    (
                        record.evidence,
                        later.connection.evidence,
                        later.records[(place[0], came[0])].evidence,
                    ),
                )


def _kept(log: Log, storage: str, keeps_us: float) -> Iterator[Verdict]:
    """Records that an earlier reading brought, and that a later one from the oldest record lacks,
    though they are younger than `keeps_us`, in a log of this storage strategy.
    """
    for pair in _pairs(log, continued=True):
        later = pair.later
        if later.connection.start or pair.type.storage != storage:
            continue
        offsets = later.offsets()
        for place, record in pair.earlier.records.items():
            came = offsets.get(place[0], [])
            if not came or place[1] > came[-1]:
                continue
            behind = later.records[(place[0], came[bisect_left(came, place[1])])]
            age_us = behind.at_us + later.ahead_us - record.append_us
            if age_us < 0 or age_us >= keeps_us:
                continue
            if place in later.records:
                yield HELD[0]
                continue
            yield RuleBroken(
                f"offset {place[1]} was not in the log any more {age_us / 1e6:.0f} s after it was"
                " appended",
                (record.evidence, later.connection.evidence, behind.evidence),
            )


def _history_kept(log: Log) -> Iterator[Verdict]:
    yield from _kept(log, "FULL_HISTORY", inf)


def _retention_kept(log: Log) -> Iterator[Verdict]:
    type_ = log.declared.type if log.declared else None
    if type_ is not None and type_.record_retention_s is not None:
        yield from _kept(log, "TRUNCATED", type_.record_retention_s * 0.9e6 - _MARGIN_US)


def _token_record(log: Log, reading: Reading) -> Delivered | None:
    """The record whose token the reading was opened with. Its append time is not before that of a
    record in front of it: times that go back are another rule's.
    """
    start = reading.connection.start
    if not start or start == "latest":
        return None
    for other in log.readings:
        for record in other.records.values():
            if record.token == start:
                partition, offset = record.place
                before = (
                    one.append_us
                    for place, one in other.records.items()
                    if place[0] == partition and place[1] < offset
                )
                return replace(record, append_us=max(record.append_us, *before, 0))
    return None


def _outlived(type_: DeclaredType, token: Delivered, reading: Reading, share: float = 0.9) -> bool:
    """Whether a token may be too old to be used (5.8)."""
    age_us = reading.opened_provider_us - token.append_us
    kept_s = type_.place_kept_s
    return kept_s is None or age_us > kept_s * share * 1e6 - _MARGIN_US


def _after_token(log: Log) -> Iterator[Verdict]:
    known: dict[int, Delivered | None] = {}

    def due(pair: _Pair, record: Delivered) -> bool:
        reading = pair.earlier
        if id(reading) not in known:
            known[id(reading)] = _token_record(log, reading)
        token = known[id(reading)]
        if token is None or _outlived(pair.type, token, reading):
            return False
        if record.place[0] == token.place[0]:
            behind = record.place[1] > token.place[1]
        else:
            behind = record.append_us > token.append_us + _SECOND_US
        # Another client beside it gets its own copies.
        delivered = any(
            record.place in other.records
            for other in log.readings
            if (other.connection.closed_us or reading.connection.opened_us)
            < reading.connection.opened_us
        )
        return behind and not delivered

    yield from _missed_at_start(log, due, "a connection did not go on behind its token")


def _old_token(log: Log) -> Iterator[Verdict]:
    def due(pair: _Pair, _: Delivered) -> bool:
        token = _token_record(log, pair.earlier)
        retention_s = pair.type.retention_s
        if token is None or retention_s is None or not pair.type.compacts:
            return False
        age_us = pair.earlier.opened_provider_us - token.append_us
        return age_us > retention_s * 1.1e6 + _MARGIN_US

    yield from _missed_at_start(
        log, due, "a token older than the tombstone retention did not lead to the oldest record"
    )


def _token_used(log: Log) -> Iterator[Verdict]:
    """Whether a token that is young is honoured at all: one that begins at the oldest record each
    time has a log that knows the token, and does not use it.
    """
    refused: list[tuple[Reading, Delivered, Delivered]] = []
    type_ = log.declared.type if log.declared else None
    if type_ is None or (type_.storage == "COMPACTED" and not type_.compacts):
        return
    life_s = type_.delay_s if type_.compacts else None
    for reading in log.readings:
        token = _token_record(log, reading)
        if token is None or not reading.records or reading.partial:
            continue
        age_us = reading.opened_provider_us - token.append_us
        if life_s is not None and age_us > life_s * 0.9e6 - _MARGIN_US:
            continue
        first = next(iter(reading.records.values()))
        partition, offset = token.place
        mine = {place for place in reading.records if place[0] == partition}
        if not mine:
            continue
        before, since = set[Place](), set[Place]()
        for one in log.readings:
            earlier = one.connection.opened_us < reading.connection.opened_us
            (before if earlier else since).update(one.records)
        # What was compacted away meanwhile cannot come again.
        standing = {
            place for place in before & since if place[0] == partition and place[1] <= offset
        }
        again = len(standing & mine)
        known = reading.records.get(token.place)
        # Another log may have an offset of the same number.
        knows = known is not None and known.token == token.token
        if knows and again > _MANY_RECORDS and again > len(standing) * 0.9:
            if all(token.token != one.token for _, one, _ in refused):
                refused.append((reading, token, first))
        elif min(mine)[1] >= offset:
            yield HELD[0]
            refused = []
    if len(refused) >= _TIMES:
        evidence = [
            part
            for reading, token, first in refused[:2]
            for part in (token.evidence, reading.connection.evidence, first.evidence)
        ]
        yield RuleBroken(
            f"{len(refused)} connections in a row with a young token began at the oldest record,"
            " and the log knew the token",
            evidence,
        )


_FEW_RECORDS: Final = 50
"""Fewer offsets than a log begins with that is made anew."""
_MANY_RECORDS: Final = 50
"""More than come again at-least-once, as any stream may send them."""
_TIMES: Final = 3
"""So often in a row: a provider may realign a client for reasons of its own (ST-0.9)."""


class _Lacking(NamedTuple):
    """A record that a later reading from the oldest record has passed over."""

    record: Delivered
    passing: Delivered
    age_us: int
    """Its age by the provider's clock when it was passed over."""
    superseded: bool
    caught_up: bool
    """Whether all came that was in the log when it was passed over."""
    absent_us: int
    """How long before that the earlier reading brought its last record."""


def _lossy(log: Log, reading: Reading) -> bool:
    """Whether a connection has passed over what another one brought afterwards: then what it lacks
    is not gone from the log.
    """
    offsets = reading.offsets()
    for other in log.readings:
        for place, record in other.records.items():
            came = offsets.get(place[0], [])
            if place in reading.records or not came or not came[0] < place[1] < came[-1]:
                continue
            passing = reading.records[(place[0], came[bisect_right(came, place[1])])]
            if passing.at_us < other.sent_us(record):
                return True
    return False


def _from_oldest_pairs(log: Log) -> Iterator[tuple[_Pair, list[_Lacking], int]]:
    """For each pair: what the later one lacks of the earlier, and how much it has."""
    for pair in _pairs(log, compacted=True):
        later = pair.later
        if later.connection.start or _lossy(log, later):
            continue
        last_offset: dict[str, int] = {}
        for other in log.readings:
            if other.connection.opened_us <= later.connection.opened_us:
                for place, one in other.records.items():
                    last_offset[one.key] = max(last_offset.get(one.key, -1), place[1])
        newest: dict[str, int] = {}
        for place, one in later.records.items():
            newest[place[0]] = max(newest.get(place[0], 0), one.append_us)
        offsets = later.offsets()
        lacking: list[_Lacking] = []
        has = 0
        for place, record in pair.earlier.records.items():
            came = offsets.get(place[0], [])
            if not came or not came[0] < place[1] < came[-1]:
                continue
            if place in later.records:
                has += 1
                continue
            passing = later.records[(place[0], came[bisect_right(came, place[1])])]
            passed_us = passing.at_us + later.ahead_us
            lacking.append(
                _Lacking(
                    record,
                    passing,
                    passed_us - record.append_us,
                    last_offset.get(record.key, -1) > place[1],
                    newest[place[0]] > passed_us + _MARGIN_US,
                    # Nobody may have read the one, or the other, for long.
                    passing.at_us - pair.earlier.last_us,
                )
            )
        yield pair, lacking, has


def _delay_kept(log: Log) -> Iterator[Verdict]:
    for pair, lacking, has in _from_oldest_pairs(log):
        keep_us = (pair.type.delay_s or 0) * 0.9e6 - _MARGIN_US
        young = [one for one in lacking if 0 <= one.age_us < keep_us]
        yield from HELD * min(has, 1)
        for one in young:
            yield RuleBroken(
                f"a record was gone {one.age_us / 1e6:.0f} s after it was appended; the compaction"
                f" delay is {pair.type.delay_s:.0f} s",
                (one.record.evidence, pair.later.connection.evidence, one.passing.evidence),
            )


def _latest_kept(log: Log) -> Iterator[Verdict]:
    for pair, lacking, has in _from_oldest_pairs(log):
        if pair.type.strategy == "CHANGE_ONLY" and pair.type.edition == TAPI_2_1_3:
            continue  # a part of an entity ends with that, which has another key
        delay_us = (pair.type.delay_s or 0) * 1e6
        retention_us = (pair.type.retention_s or 0) * 0.9e6
        yield from HELD * min(has, 1)
        for one in lacking:
            living = one.record.kind not in {"DELETE", "TOMBSTONE"}
            # What ended while we were away may have no tombstone any more.
            known = one.absent_us < retention_us
            old = one.age_us > delay_us * 1.1 + _MARGIN_US
            if living and known and old and one.caught_up and not one.superseded:
                yield RuleBroken(
                    f"the last record of {one.record.key} is not in the log any more, and nothing"
                    " came in its place",
                    (one.record.evidence, pair.later.connection.evidence, one.passing.evidence),
                )


def _tombstones_kept(log: Log) -> Iterator[Verdict]:
    for pair, lacking, _ in _from_oldest_pairs(log):
        delay_us = (pair.type.delay_s or 0) * 1e6
        keep_us = (pair.type.retention_s or 0) * 0.9e6 - _MARGIN_US
        has = any(
            one.kind == "TOMBSTONE" and place in pair.earlier.records
            for place, one in pair.later.records.items()
        )
        yield from HELD * has
        for one in lacking:
            # A younger one is a matter of the compaction delay.
            between = delay_us * 1.1 + _MARGIN_US < one.age_us < keep_us
            gone = one.record.kind == "TOMBSTONE" and one.caught_up and not one.superseded
            if gone and between:
                yield RuleBroken(
                    f"a TOMBSTONE was gone {one.age_us / 1e6:.0f} s after it was appended; they are"
                    f" kept {pair.type.retention_s:.0f} s",
                    (one.record.evidence, pair.later.connection.evidence, one.passing.evidence),
                )


def _compacted(log: Log) -> Iterator[Verdict]:
    """Whether records that are superseded are removed at all."""
    type_ = log.declared.type if log.declared else None
    if type_ is None or not type_.compacts:
        return
    for reading in log.readings:
        if reading.connection.start or reading.partial:
            continue
        due_us = reading.opened_provider_us - (type_.delay_s or 0) * 3e6 - 10 * _SECOND_US
        last: dict[tuple[str, str], Delivered] = {}
        latest_us: dict[str, int] = {}
        for place, record in sorted(reading.records.items()):
            # Append times that go back are another rule's.
            appended_us = max(record.append_us, latest_us.get(place[0], 0))
            latest_us[place[0]] = appended_us
            if appended_us > due_us:
                continue
            name = (record.key, record.uuid)
            before = last.get(name)
            if before is not None and before.place[0] == place[0]:
                age_s = (reading.opened_provider_us - record.append_us) / 1e6
                yield RuleBroken(
                    f"two records of {record.key} are in the log; the later is {age_s:.0f} s old,"
                    f" and the compaction delay is {type_.delay_s:.0f} s",
                    (before.evidence, record.evidence, reading.connection.evidence),
                )
            last[name] = record
        if last:
            yield HELD[0]


def _rule(id_: str, **given: Any) -> Rule:
    given.setdefault("provoke", "Run with --active, while something changes in the network.")
    given.setdefault("sees", (Log,))
    return Rule(id=f"tapi-{id_}", chapter=_CHAPTER, **given)


RULES: Final[tuple[Rule, ...]] = (
    _rule(
        "order",
        text="The records of a partition come in the order of its offsets.",
        clauses=clauses("3.11.2, 6.1.2", "3.11.2, 8.1.2"),
        provoke="Let something change in the network.",
        why="Two states of one entity in the wrong order leave the older one in the store: an"
        " alarm that was cleared stands again.",
        right="offsets 5, 6, 9 (7 and 8 are compacted)",
        wrong="offsets 5, 9, 7",
        sees=(RecordSeen, ConnectionSeen),
        make_judge=_Order,
    ),
    _rule(
        "append-times-grow",
        text="A record is not appended earlier than the one before it in its partition.",
        clauses=clauses("3.11.2", "3.11.2"),
        provoke="Let something change in the network.",
        why="In a realignment the later time wins. Times that go back make an older state win.",
        right="times that grow, or stay, with the offsets",
        wrong="offset 9 at 10:00:05, offset 10 at 09:00:06",
        sees=(RecordSeen, ConnectionSeen),
        make_judge=_AppendTimes,
    ),
    _rule(
        "one-partition",
        text="All records of an entity are in one partition.",
        clauses=clauses("6.1.4", "8.1.4"),
        provoke="Let one entity change twice.",
        why="There is no order between partitions. The last state of an entity that is in two of"
        " them is a matter of luck.",
        right="partition 3 for each record of k",
        wrong="partition 3, then partition 0 for k",
        make_judge=_Partition,
        sees=(RecordSeen,),
    ),
    _rule(
        "at-least-once",
        text="Each record of the log is sent: none is passed over between two that are.",
        clauses=clauses("3.6", "3.6"),
        why="What was passed over never comes again: the client's store is wrong until the entity"
        " changes once more.",
        right="offsets 5, 6, 7",
        wrong="offsets 5, 7, while 6 is in the log",
        make_judge=log_judge(_skipped),
    ),
    _rule(
        "start-oldest",
        text="A connection without token begins at the oldest record of the log.",
        clauses=clauses("5.10.1, ST-0.3", "7.10.1, ST-0.3"),
        why="A new client knows only what the log tells it. What lies before its first record does"
        " not exist for it.",
        right="the record with the lowest offset first",
        wrong="the next record that is appended",
        make_judge=log_judge(_from_oldest),
    ),
    _rule(
        "token-next",
        text="A connection with a token goes on with the record behind that of the token.",
        clauses=clauses("5.8, ST-0.7", "7.8, ST-0.7"),
        why="A client takes for read what lies before the first record. Changes that were skipped"
        " are lost without a sign.",
        right="token of offset 9, first record: offset 10, or one before",
        wrong="token of offset 9, first record: offset 40",
        make_judge=log_judge(_after_token),
    ),
    _rule(
        "token-used",
        text="A token that is younger than the compaction delay is used.",
        clauses=clauses("5.8, ST-0.7", "7.8, ST-0.7"),
        why="A provider that always begins at the oldest record makes each short loss of a"
        " connection a whole realignment.",
        right="token of offset 9, first record: offset 10",
        wrong="token of offset 9, first record: offset 0, each time",
        make_judge=log_judge(_token_used),
    ),
    _rule(
        "token-old",
        text="A token older than the tombstone retention leads back to the oldest record.",
        clauses=clauses("5.8, ST-0.8", "7.8, ST-0.8"),
        provoke="Run with --active against a log with a short tombstone retention.",
        why="Tombstones that the client did not get are gone. Only a restart shows it what has"
        " ended meanwhile.",
        right="the oldest record first",
        wrong="the record behind the token",
        make_judge=log_judge(_old_token),
    ),
    _rule(
        "delay-kept",
        text="A compacted log keeps every record for the compaction delay.",
        clauses=clauses("3.7.1, 3.17.3", "3.7.1, 3.17.3"),
        why="A client that is behind by less than the delay counts on full fidelity: it loses"
        " short alarms, and does not know it.",
        right="all states of k in the last 10 minutes",
        wrong="only the last state of k, seconds after the one before",
        make_judge=log_judge(_delay_kept),
    ),
    _rule(
        "history-kept",
        text="A log of full history keeps every record.",
        clauses=clauses("3.8.1.3", "3.8.1.3"),
        why="A client that reads the history, of alarms for example, takes what is gone for what"
        " never happened.",
        right="all records since the context was created",
        wrong="a FULL_HISTORY that begins at offset 100, and began at offset 0 an hour ago",
        make_judge=log_judge(_history_kept),
    ),
    _rule(
        "retention-kept",
        text="A truncated log keeps its records for the record-retention.",
        clauses=clauses("3.7.1, 3.8.1.2", "3.7.1, 3.8.1.2", RuleLevel.SHOULD),
        why="A client that was away for less than that goes on behind its token, and takes nothing"
        " for lost: what was removed meanwhile never comes to it.",
        right='"record-retention": "60", and all records of the last hour',
        wrong='"record-retention": "1440", and the oldest record is ten minutes old',
        make_judge=log_judge(_retention_kept),
    ),
    _rule(
        "latest-kept",
        text="A compacted log keeps the last record of each entity that exists.",
        clauses=clauses("3.8.1.1", "3.8.1.1"),
        why="A client that aligns anew does not get the entity, and sweeps it away: a node that is"
        " there is gone from the store.",
        right="a record of k, however old",
        wrong="no record of k after some hours",
        make_judge=log_judge(_latest_kept),
    ),
    _rule(
        "tombstones-kept",
        text="A compacted log keeps a TOMBSTONE for the tombstone retention.",
        clauses=clauses("3.8.1.1", "3.8.1.1"),
        why="A client that was away for less than that counts on it: without the TOMBSTONE the"
        " entity lives on in its store.",
        right="the TOMBSTONE of k for four hours",
        wrong="no TOMBSTONE of k after half an hour",
        make_judge=log_judge(_tombstones_kept),
    ),
    _rule(
        "compaction",
        text="A compacted log removes what is superseded, some time after the compaction delay.",
        clauses=clauses("3.8.1.1", "3.8.1.1", RuleLevel.SHOULD),
        provoke="Run against a log that is older than three compaction delays.",
        why="A log that is never compacted grows without bound: aligning takes longer each day.",
        right="one record of each key that is older than the delay",
        wrong="hundreds of records of one key, days old",
        make_judge=log_judge(_compacted),
    ),
)
