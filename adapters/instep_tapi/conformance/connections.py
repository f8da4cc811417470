"""The rules about connections: opening, idling, slow clients, several of them (TR-548 ST-0.3 to
ST-0.9, 3.5, 3.6, 3.9.1.8, 5.8).

A connection may end for reasons of its own, on either side and between. So nothing is concluded
from one that ends or is refused once: it must come again, and nothing must speak against it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, Final

from instep.conformance import HELD, NOTHING, Evidence, Rule, RuleBroken, RuleLevel, Verdict
from instep_tapi.conformance.making import clauses, log_judge
from instep_tapi.conformance.observations import (
    ConnectionSeen,
    DeclaredType,
    Delivered,
    Log,
    QuietSeen,
    Reading,
    ReadingPause,
    RefusalSeen,
    StreamsSeen,
)

__all__ = ["RULES"]

_CHAPTER: Final = "Connections"
_TIMES: Final = 3
"""So often in a row a connection must end or be refused alike."""
_SECOND_US: Final = 1_000_000
_MARGIN_US: Final = 2_000_000
"""How far a time of ours and one of the provider's may be apart: a Date has whole seconds."""
_PONG_EVERY_US: Final = 31_000_000
"""A Pong is due every 30 seconds (5.8), and may take a moment."""
_SILENT_US: Final = 90_000_000
"""A provider that has heard nothing for three times as long has no time-out."""
_DISPLACED_US: Final = 1_000_000
"""A connection that ends within so long after another was opened may have been displaced by it."""
_SETTLED_US: Final = 5_000_000
"""A connection that was open for so long is none that fails by itself."""
_BURST_US: Final = 5_000_000
"""What comes within so long after the opening was in the log."""
_PASSING: Final = {401, 403, 407, 408, 409, 425, 429}
"""Refusals that are about the login, or pass."""


def _refused_for_good(seen: RefusalSeen) -> bool:
    return 400 <= seen.status < 500 and seen.status not in _PASSING


class _Accepted:
    """Judges that a stream which is listed as ACTIVE can be connected to at all."""

    def __init__(self) -> None:
        self._open: dict[str, set[int]] = {}
        self._refused: dict[str, list[RefusalSeen]] = {}
        self._listed: dict[str, int] = {}
        """How many of these refusals were followed by a list with the stream as ACTIVE in it."""

    def __call__(self, seen: ConnectionSeen | RefusalSeen | StreamsSeen) -> Sequence[Verdict]:
        match seen:
            case ConnectionSeen():
                of_stream = self._open.setdefault(seen.stream, set())
                if seen.closed_us is not None:
                    of_stream.discard(seen.id)
                    return NOTHING
                of_stream.add(seen.id)
                self._refused.pop(seen.stream, None)
                self._listed.pop(seen.stream, None)
                return HELD
            case RefusalSeen():
                if _refused_for_good(seen) and not seen.start and not self._open.get(seen.stream):
                    self._refused.setdefault(seen.stream, []).append(seen)
                return NOTHING
        found: list[Verdict] = []
        for stream in seen.streams:
            refused = self._refused.get(stream.uuid, [])
            if stream.state == "ACTIVE" and len(refused) > self._listed.get(stream.uuid, 0):
                self._listed[stream.uuid] = len(refused)
                if len(refused) >= _TIMES:
                    evidence = [one.evidence for one in refused]
                    reason = f"{stream.name} is ACTIVE, and refused {len(refused)} connections"
                    del self._refused[stream.uuid], self._listed[stream.uuid]
                    found.append(RuleBroken(reason, (*evidence, seen.evidence)))
        return found


class _TokenAccepted:
    """Judges that no connection is refused for its token. One that is refused proves it where the
    next one, without a token, is accepted.
    """

    def __init__(self) -> None:
        self._refused: dict[str, RefusalSeen] = {}
        self._proven: dict[str, list[Evidence]] = {}

    def __call__(self, seen: ConnectionSeen | RefusalSeen) -> Sequence[Verdict]:
        if isinstance(seen, RefusalSeen):
            if seen.start not in {"", "latest"} and _refused_for_good(seen):
                self._refused[seen.stream] = seen
            return NOTHING
        if seen.closed_us is not None or seen.start == "latest":
            return NOTHING
        refused = self._refused.pop(seen.stream, None)
        if seen.start:
            self._proven.pop(seen.stream, None)
            return HELD
        if refused is None:
            return NOTHING
        proven = self._proven.setdefault(seen.stream, [])
        proven += (refused.evidence, seen.evidence)
        if len(proven) < 4:
            return NOTHING
        reason = "connections with a token were refused, and accepted without one"
        return (RuleBroken(reason, tuple(self._proven.pop(seen.stream))),)


class _SecondClient:
    """Judges that a second connection to a stream is accepted, and the first one goes on. Where two
    were ever open beside each other, whatever ends one is no displacement.
    """

    def __init__(self) -> None:
        self._open: dict[str, dict[int, ConnectionSeen]] = {}
        self._ended: dict[str, ConnectionSeen] = {}
        """Stream → the last connection to it that the provider has closed."""
        self._displaced: dict[int, ConnectionSeen] = {}
        """The second connection → the first one, which ended when it came."""
        self._served: set[str] = set()
        """Streams to which two connections were open beside each other."""
        self._against: dict[str, list[Evidence]] = {}
        self._ends: dict[str, list[tuple[int, int]]] = {}
        """For how long those that ended so were silent before, and were open."""

    def __call__(self, seen: ConnectionSeen | RefusalSeen | Log) -> Sequence[Verdict]:
        if isinstance(seen, Log):
            others = self._open.get(seen.declared.uuid, {}) if seen.declared else {}
            found = [verdict for one in others.values() for verdict in self._look(one, seen.at_us)]
            return found[:1]
        others = self._open.setdefault(seen.stream, {})
        if isinstance(seen, RefusalSeen):
            if not others or seen.status == 401:
                return NOTHING
            first = next(iter(others.values()))
            reason = "a second connection to a stream is refused"
            return self._count(seen.stream, reason, (first.evidence, seen.evidence))
        if seen.closed_us is None:
            ended = self._ended.get(seen.stream)
            if ended is not None and 0 < seen.asked_us < (ended.closed_us or 0):
                self._displaced[seen.id] = ended
            others[seen.id] = seen
            return NOTHING
        if seen.id not in others:
            return NOTHING
        found = list(self._look(seen, seen.closed_us))
        del others[seen.id]
        self._displaced.pop(seen.id, None)
        if seen.closed_by_peer:
            self._ended[seen.stream] = seen
            for other in others.values():
                if 0 <= seen.closed_us - other.opened_us < _DISPLACED_US:
                    self._displaced[other.id] = seen
        return found

    def _look(self, second: ConnectionSeen, at_us: int) -> Sequence[Verdict]:
        """What a connection shows that is open until now."""
        others = [one for one in self._open[second.stream].values() if one is not second]
        beside_us = min((at_us - max(second.opened_us, one.opened_us) for one in others), default=0)
        if beside_us >= _SETTLED_US:
            self._served.add(second.stream)
            return HELD
        first = self._displaced.pop(second.id, None)
        if first is None or second.stream in self._served:
            return NOTHING
        if min(at_us - second.opened_us, second.asked_us - first.opened_us) < _SETTLED_US:
            return NOTHING
        # Some end connections after a fixed time, or when they were silent for one: where each
        # lasted as long as the one before, it is that.
        silent_us = (first.closed_us or 0) - first.quiet_us
        lasted_us = (first.closed_us or 0) - first.opened_us
        ended = self._ends.setdefault(second.stream, [])
        alike = any(
            abs(one - other) < _SECOND_US
            for pair in ended
            for one, other in zip(pair, (silent_us, lasted_us), strict=True)
            if other > _SECOND_US
        )
        ended.append((silent_us, lasted_us))
        del ended[:-_TIMES]
        if alike:
            return NOTHING
        reason = "a connection is closed where a second one to its stream is opened"
        shown = (first.evidence, second.evidence, first.closing)
        return self._count(second.stream, reason, shown)

    def _count(self, stream: str, reason: str, shown: Sequence[Evidence]) -> Sequence[Verdict]:
        if stream in self._served:
            return NOTHING
        against = self._against.setdefault(stream, [])
        against += shown
        if len(against) < 2 * len(shown):
            return NOTHING
        del self._against[stream]
        return (RuleBroken(f"{reason}, each time", tuple(against)),)


class _IdleKept:
    """Judges that a connection on which Pongs come is not closed for being idle: several in a row
    that end after the same time, while none was idle for longer and went on.
    """

    def __init__(self) -> None:
        self._ended: dict[str, list[QuietSeen]] = {}

    def __call__(self, seen: QuietSeen) -> Sequence[Verdict]:
        connection = seen.connection
        if connection.withheld_us is not None or not connection.is_websocket:
            return NOTHING
        if seen.longest_us > _PONG_EVERY_US:
            return NOTHING
        if 0 < seen.since_us - connection.opened_us < _BURST_US and seen.closed_by_peer:
            return NOTHING  # a client that has read the log may be made to align anew (ST-0.9)
        ended = self._ended.setdefault(connection.stream, [])
        if not seen.closed_by_peer:
            # Whatever ended the others, it was not that they were idle for so long.
            ended[:] = [one for one in ended if one.lasted_us > seen.lasted_us]
            return HELD if seen.lasted_us > _PONG_EVERY_US else NOTHING
        ended.append(seen)
        del ended[:-_TIMES]
        lasted = [one.lasted_us for one in ended]
        alike = max(lasted) - min(lasted) <= max(_SECOND_US, max(lasted) // 20)
        if len(ended) < _TIMES or not alike:
            return NOTHING
        evidence = [part for one in ended for part in one.evidence]
        ended.clear()
        reason = (
            f"{_TIMES} connections in a row were closed {min(lasted) / 1e6:.0f} s after the last"
            " that came, though Pongs were sent"
        )
        return (RuleBroken(reason, evidence),)


def _pong_timeout(seen: QuietSeen | ConnectionSeen) -> Sequence[Verdict]:
    if isinstance(seen, ConnectionSeen):
        return HELD if seen.withheld_us is not None and seen.closed_by_peer else NOTHING
    withheld_us = seen.connection.withheld_us
    if withheld_us is None or seen.closed_by_peer or not seen.connection.is_websocket:
        return NOTHING
    silent_us = seen.until_us - max(seen.since_us, withheld_us)
    if silent_us < _SILENT_US:
        return NOTHING
    reason = f"an idle connection is open after {silent_us / 1e6:.0f} s without a Pong"
    return (RuleBroken(reason, (seen.connection.evidence, *seen.evidence)),)


def _pause_that_ended_it(seen: ConnectionSeen, ahead_us: int) -> ReadingPause | None:
    """The pause of our reading in which the provider has closed a connection: nothing that was
    appended afterwards came over it.
    """
    if not seen.closed_by_peer or not seen.pauses or seen.closed_us is None:
        return None
    last = seen.pauses[-1]
    went_on = seen.appended_us > last.until_us + ahead_us
    late = seen.closed_us - last.until_us > 10 * _SECOND_US
    return None if went_on or late or not last.backed_up else last


def _young_us(type_: DeclaredType) -> float:
    """The age below which a record is in the log for certain, whatever was appended since."""
    return (type_.whole_for_s or 0) * 0.9e6 - _MARGIN_US


def _judged(log: Log) -> DeclaredType | None:
    """The type of a log that is no snapshot, in which a reading has its place."""
    type_ = log.declared.type if log.declared else None
    emulated = type_ is not None and type_.storage == "COMPACTED" and not type_.compacts
    return None if emulated else type_


def _slow_kept(log: Log) -> Iterator[Verdict]:
    type_ = _judged(log)
    if type_ is None:
        return
    kept_s = type_.place_kept_s
    closed: list[Reading] = []
    for reading in log.readings:
        connection, ahead_us = reading.connection, reading.ahead_us
        ended_in = _pause_that_ended_it(connection, ahead_us)
        for pause in (one for one in connection.pauses if one.backed_up and one != ended_in):
            # Something must have waited for us meanwhile.
            begin, end, _ = pause.moved(ahead_us)
            if any(begin < one.append_us < end for one in reading.records.values()):
                closed.clear()
                yield HELD[0]
        if (
            ended_in is None
            or not _another_went_on(log, reading, ended_in.since_us)
            or (
                kept_s is not None
                and ended_in.until_us + ahead_us - connection.appended_us > kept_s * 0.9e6
            )
        ):
            continue
        closed.append(reading)
        if len(closed) == _TIMES:
            ends = [(one.connection.evidence, one.connection.closing) for one in closed]
            reason = (
                f"{_TIMES} connections in a row were closed while we read nothing; others, which"
                " we read, went on"
            )
            yield RuleBroken(reason, [part for pair in ends for part in pair])


def _another_went_on(log: Log, reading: Reading, since_us: int) -> bool:
    """Whether a connection that was read was open from then on, until after the end of this one."""
    closed_us = reading.connection.closed_us or 0
    return any(
        one.opened_us < since_us
        and (one.closed_us is None or one.closed_us > closed_us)
        and not any(begin < closed_us and since_us < end for begin, end, _ in one.pauses)
        for one in (other.connection for other in log.readings if other is not reading)
    )


def _slow_lossless(log: Log) -> Iterator[Verdict]:
    """Records that were appended while a client read nothing, and that it does not get, though they
    are young.
    """
    type_ = _judged(log)
    if type_ is None:
        return
    for reading, (since, until, _) in _pauses(log):
        offsets = reading.offsets()
        for place, record in _others(log, reading):
            came = offsets.get(place[0], [])
            index = bisect_right(came, place[1])
            if not 0 < index < len(came) or not since < record.append_us < until:
                continue
            if place in reading.records:
                yield HELD[0]
                continue
            behind = reading.records[(place[0], came[index])]
            if behind.at_us + reading.ahead_us - record.append_us < _young_us(type_):
                yield RuleBroken(
                    f"offset {place[1]}, which was appended while we read nothing on connection"
                    f" {reading.connection.id}, was not sent there; it went on to offset"
                    f" {came[index]}",
                    (record.evidence, behind.evidence),
                )


def _slow_dropped(log: Log) -> Iterator[Verdict]:
    """Tombstones that a connection has passed over because they were gone: it was to be dropped."""
    type_ = _judged(log)
    if type_ is None or not type_.compacts:
        return
    retention_us = (type_.retention_s or 0) * 1e6
    last: dict[str, int] = {}
    for reading in log.readings:
        connection = reading.connection
        for place, record in reading.records.items():
            last[record.key] = max(last.get(record.key, -1), place[1])
        ended_in = _pause_that_ended_it(connection, reading.ahead_us)
        if (
            ended_in
            and ended_in.until_us + reading.ahead_us - connection.appended_us > retention_us
        ):
            yield HELD[0]
    for reading in log.readings:
        if reading.partial:
            continue
        offsets = reading.offsets()
        states: dict[str, list[Delivered]] = {}
        for _, record in sorted(reading.records.items()):
            states.setdefault(record.key, []).append(record)
        for place, ended in _others(log, reading):
            came = offsets.get(place[0], [])
            index = bisect_left(came, place[1])
            known = [one for one in states.get(ended.key, ()) if one.place < place]
            if (
                ended.kind != "TOMBSTONE"
                or place in reading.records
                or not 0 < index < len(came)
                or last[ended.key] > place[1]
                or not known
                or known[-1].kind in {"DELETE", "TOMBSTONE"}
            ):
                continue
            behind = reading.records[(place[0], came[index])]
            if behind.at_us + reading.ahead_us - ended.append_us > retention_us:
                yield RuleBroken(
                    f"connection {reading.connection.id} went on, though the TOMBSTONE of"
                    f" {ended.key} that it had not sent was out of the log",
                    (known[-1].evidence, ended.evidence, behind.evidence),
                )


def _slow_alone(log: Log) -> Iterator[Verdict]:
    """Whether a client that is up to date gets nothing as long as another one reads nothing."""
    late: list[Evidence] = []
    for reading, (since, until, _) in _pauses(log):
        if until - since < 2 * _MARGIN_US + _SECOND_US:
            continue
        for other in log.readings:
            connection = other.connection
            whole = connection.opened_us + other.ahead_us < since and (
                connection.closed_us is None or connection.closed_us + other.ahead_us > until
            )
            if other is reading or not whole or connection.pauses:
                continue
            mine = sorted(other.records.values(), key=lambda one: one.append_us)
            before = [one for one in mine if one.append_us < since]
            begin, end = since + _MARGIN_US, until - _MARGIN_US
            waited = [one for one in mine if begin < one.append_us < end]
            if not before or len(waited) < 3:
                continue
            arrived = [one.at_us + other.ahead_us for one in waited]
            if before[-1].at_us + other.ahead_us > begin:
                continue  # it was behind anyway
            if min(arrived) < end:
                yield HELD[0]
                late.clear()
                continue
            paused = Evidence.of(
                since - reading.ahead_us,
                f"we read nothing on connection {reading.connection.id} from here",
                b"",
            )
            late += (paused, waited[0].evidence, waited[-1].evidence)
            if len(late) == 6:
                yield RuleBroken(
                    "a connection got nothing, twice, as long as we read nothing on another one",
                    tuple(late),
                )


def _pauses(log: Log) -> Iterator[tuple[Reading, ReadingPause]]:
    """Each pause of our reading that a provider may have felt, by its clock."""
    for reading in log.readings:
        for pause in reading.connection.pauses:
            if pause.backed_up and not reading.partial:
                yield reading, pause.moved(reading.ahead_us)


def _others(log: Log, reading: Reading) -> Iterator[tuple[tuple[str, int], Delivered]]:
    """What all other readings brought, if it is the same log: a record is in both."""
    tokens = {one.token for one in reading.records.values()}
    for other in log.readings:
        if other is not reading and any(one.token in tokens for one in other.records.values()):
            yield from other.records.items()


def _rule(id_: str, **given: Any) -> Rule:
    given.setdefault("provoke", "Run with --active, while something changes in the network.")
    given.setdefault("sees", (Log,))
    return Rule(id=f"tapi-{id_}", chapter=_CHAPTER, **given)


RULES: Final[tuple[Rule, ...]] = (
    _rule(
        "connection-accepted",
        text="A stream that is ACTIVE can be connected to.",
        clauses=clauses("ST-0.2, ST-0.3", "ST-0.2, ST-0.3"),
        provoke="Let the provider offer a stream.",
        why="A client that finds a stream in the list and cannot read it has no state, and no"
        " reason for that.",
        right="101 Switching Protocols at the connection-address",
        wrong="404 at the connection-address of an ACTIVE stream",
        sees=(ConnectionSeen, RefusalSeen, StreamsSeen),
        make_judge=_Accepted,
    ),
    _rule(
        "token-accepted",
        text="A connection with a token is accepted, however old the token is.",
        clauses=clauses("5.8, ST-0.8, ST-0.9", "7.8, ST-0.8, ST-0.9"),
        provoke="Run with --active: it comes back with its tokens.",
        why="The provider, not the client, knows whether a token still has a place in the log. A"
        " client that is refused cannot tell this from a stream that is gone.",
        right="101, and the oldest record where the token is too old",
        wrong="400 for start_from with a token, and 101 without",
        sees=(ConnectionSeen, RefusalSeen),
        make_judge=_TokenAccepted,
    ),
    _rule(
        "second-client",
        text="A second client of a stream is served, and the first one goes on.",
        clauses=clauses("3.5, 3.6", "3.5, 3.6", RuleLevel.SHOULD),
        provoke="Run with --active: it opens a second connection.",
        why="An audit, a standby and a second application each need a connection. Where they push"
        " each other out, all of them align anew without end.",
        right="two connections to one stream, each at its own place in the log",
        wrong="403 for the second, or the end of the first",
        sees=(ConnectionSeen, RefusalSeen, Log),
        make_judge=_SecondClient,
    ),
    _rule(
        "idle-kept",
        text="An idle connection on which Pongs come is kept.",
        clauses=clauses("ST-0.4, 5.8", "ST-0.4, 7.8"),
        provoke="Let nothing change in the network for a minute.",
        why="Each new connection costs a login and a place in the log, and may cost a realignment:"
        " in a quiet network once a minute, for nothing.",
        right="an hour without a record, with a Pong each 15 s",
        wrong="the end of the connection 60 s after the last record",
        sees=(QuietSeen,),
        make_judge=_IdleKept,
    ),
    _rule(
        "pong-timeout",
        text="A connection that is idle and on which no Pong comes is dropped.",
        clauses=clauses("ST-0.4, 5.8", "ST-0.4, 7.8", RuleLevel.SHOULD),
        provoke="Run with --active for two minutes or more, while nothing changes: it holds its"
        " Pongs.",
        why="A client that has vanished without a word holds its place at the provider for ever:"
        " at last no other one gets a connection.",
        right="the end of the connection 30 s after the last Pong",
        wrong="a connection that is open after 90 s without any Pong",
        sees=(QuietSeen, ConnectionSeen),
        make_judge=lambda: _pong_timeout,
    ),
    _rule(
        "slow-kept",
        text="A client that reads slowly keeps its connection as long as the log has its place.",
        clauses=clauses("3.9.1.7, ST-0.5", "3.9.1.7, ST-0.5"),
        why="A storm makes each client slow for a while. One that is dropped for it comes back"
        " further behind than before.",
        right="the next record, as soon as the client reads on",
        wrong="the end of the connection seconds after the client stops reading",
        make_judge=log_judge(_slow_kept),
    ),
    _rule(
        "slow-lossless",
        text="What a slow client has not read yet waits in the log: nothing of it is lost.",
        clauses=clauses("3.6, 5.8", "3.6, 7.8"),
        why="A queue that overflows loses changes without a sign: the client's store is wrong until"
        " each of these entities changes again.",
        right="offsets 5, 6, 7 after a pause behind 4",
        wrong="offsets 4, 90 after a pause, while 5 to 89 are in the log",
        make_judge=log_judge(_slow_lossless),
    ),
    _rule(
        "slow-dropped",
        text="A client that has fallen behind the tombstone retention is dropped.",
        clauses=clauses("3.9.1.8, ST-0.6", "3.9.1.8, ST-0.6"),
        provoke="Run with --active, more than ten times as long as the tombstone retention.",
        why="Tombstones that it has not got are gone. If nobody tells it to align anew, what has"
        " ended stands in its store for ever.",
        right="the end of the connection, then the oldest record",
        wrong="records that go on behind a TOMBSTONE that was never sent",
        make_judge=log_judge(_slow_dropped),
    ),
    _rule(
        "slow-alone",
        text="A client that reads slowly holds no other one up.",
        clauses=clauses("3.3", "3.3", RuleLevel.SHOULD),
        why="One client that is overloaded stops all of them: the network looks quiet to an alarm"
        " system that works.",
        right="records for one client, while another one reads nothing",
        wrong="nothing for anybody, until the slow one reads on",
        make_judge=log_judge(_slow_alone),
    ),
)
