"""`alarms`: episodes and events, from the statements of condition-detectors (TR-548 4)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Annotated, Any, ClassVar, Final

import msgspec

from instep.model.records import RecordHeader, RecordType
from instep.ports.derivation import (
    Changes,
    Column,
    ColumnType,
    Index,
    Query,
    Row,
    StatementDerivation,
    Statements,
    StatementTable,
    Update,
    View,
    ViewColumn,
)
from instep.ports.reader import StoreReader
from instep_tapi.facts.detector import DETECTOR, Detector
from instep_tapi.facts.episodes import NO_LINEAGE, SWEEP, Episode, LogReading, follow_statement
from instep_tapi.facts.event_times import ApproximateTime

__all__ = ["AlarmEpisode", "AlarmOptions", "Alarms", "alarms", "derivation"]

_NAME: Final = "instep_alarm"
_FACTS: Final = tuple(
    name
    for name in Detector.__struct_fields__
    if name not in ("state", "event", "acknowledged", "severity")
)
_MOVED: Final = (
    *("statements", "stated_at_us", "reduced"),
    *("lineage", "attempt", "partition", "offset", "appended_at_us"),
)
"""What a statement changes that says nothing new; no index has any of it."""
_OTHERS: Final = (
    *("state", "ended_by", "cleared_at_us", "cleared_from_us", "cleared_spread"),
    *("cleared_precision", "raised_at_us", "raised_from_us", "raised_spread", "raised_precision"),
    *("first_raised_at_us", "worst_severity", "severity_changes", "intermittent_count"),
    *("flapping_count", "digest", "last_state", "event", "acknowledged", "severity", *_FACTS),
)
_INDEXED: Final = ("ended_by", "measured_uuid")
"""Most statements change none of them, and an assignment writes the index anew even where the value
stays."""
_NOT_INDEXED: Final = [at for at, name in enumerate(_OTHERS) if name not in _INDEXED]
_not_indexed: Final = itemgetter(*_NOT_INDEXED)
_RESTATED: Final = (*_MOVED, *(_OTHERS[at] for at in _NOT_INDEXED))
_SWEPT: Final = ("state", "ended_by", "reduced", "lineage", "cleared_at_us", "cleared_spread")
_COLUMNS: Final = ("key", "number", *_MOVED, *_OTHERS)
_ID: Final = 0
_RAISED: Final = 1 + _COLUMNS.index("raised_at_us")
_REDUCED: Final = 1 + _COLUMNS.index("reduced")
_NUMBERS: Final = frozenset(
    {
        *("number", "statements", "lineage", "attempt", "severity_changes"),
        *("intermittent_count", "flapping_count"),
    }
)
_FLAGS: Final = frozenset({"reduced", "event", "acknowledged"})
_LONGS: Final = frozenset({"offset", "digest", *(one for one in _COLUMNS if one.endswith("_us"))})
_STATED: Final = frozenset(
    {
        *("key", "number", *_MOVED, "state", "raised_at_us", "first_raised_at_us"),
        *("severity_changes", "intermittent_count", "flapping_count", "digest", "last_state"),
        "event",
    }
)
"""The columns that each row has."""


def _column(name: str) -> Column:
    kinds = {_NUMBERS: ColumnType.INTEGER, _FLAGS: ColumnType.FLAG, _LONGS: ColumnType.LONG}
    kind = next((kind for names, kind in kinds.items() if name in names), ColumnType.TEXT)
    return Column(name, kind, nullable=name not in _STATED)


_TABLE: Final = StatementTable(
    name=_NAME,
    columns=tuple(map(_column, _COLUMNS)),
    key=("key", "number"),
    indexes=(
        Index("instep_alarm_measured", ("measured_uuid",)),
        Index("instep_alarm_standing", ("stream_no",), where_null="ended_by"),
    ),
    latest="number",
    open="ended_by",
    retention="alarm_retention_records",
)
_KNOWN: Final = """
    EXISTS (SELECT 1 FROM instep_stream AS o JOIN instep_entity AS e ON e.stream_no = o.id
            WHERE o.consumer = s.consumer AND e.uuid = r.measured_uuid AND e.uuid <> '')
"""


def _shown(names: str, **others: str) -> tuple[ViewColumn, ...]:
    """View columns by name: `name`, `name=column`, times where the column ends with `_us`."""
    found: list[ViewColumn] = []
    for one in names.split():
        name, _, column = one.partition("=")
        column = column or name
        shown_as = "time" if column.endswith("_us") else ""
        found.append(ViewColumn(name, others.get(name, f'r."{column}"'), shown_as))
    return tuple(found)


_ALARMS: Final = View(
    "instep_alarms",
    _NAME,
    _shown(
        """
        key number condition condition_normalized state severity worst_severity service_affect
        acknowledged info raised_at=raised_at_us raised_from=raised_from_us raised_spread
        raised_precision first_raised_at=first_raised_at_us last_stated_at=stated_at_us
        cleared_at=cleared_at_us cleared_spread cleared_precision ended_by duration_s
        flapping_count severity_changes intermittent_count statements reduced_fidelity=reduced
        measured_class measured_uuid measured_known measured_native_id measured_local_id node_uuid
        detector_native_id detector_uuid
        """,
        duration_s="(r.cleared_at_us - r.raised_at_us) / 1e6",
        measured_known=_KNOWN,
    ),
    where="r.event = 0",
)
_EVENTS: Final = View(
    "instep_alarm_events",
    _NAME,
    _shown(
        """
        key number condition condition_normalized detector_type occurred_at=raised_at_us
        occurred_from=raised_from_us spread=raised_spread precision=raised_precision measured_class
        measured_uuid measured_native_id measured_local_id node_uuid detector_native_id
        detector_uuid
        """
    ),
    where="r.event = 1",
)
_QUERY: Final = Query(
    f"""
    SELECT r.*, s.consumer, s.stream, CASE WHEN {_KNOWN} THEN 1 ELSE 0 END AS known
    FROM {_NAME} AS r JOIN instep_stream AS s ON s.id = r.stream_no WHERE {{more}}
    """,
    {
        "consumer": "s.consumer = :consumer",
        "stream": "s.stream = :stream",
        "key": "r.key = :key",
        "measured": "r.measured_uuid = :measured",
        "event": "r.event = :event",
        "standing": "r.ended_by IS NULL",
        "ended": "r.ended_by IS NOT NULL",
    },
    {"id": ("r.id", -1)},
)
_SUMMARY: Final = Query(
    f"""
    SELECT coalesce(r.severity, 'no severity') AS severity, count(*) AS standing
    FROM {_NAME} AS r JOIN instep_stream AS s ON s.id = r.stream_no
    WHERE r.ended_by IS NULL AND r.event = 0 AND {{more}}
    GROUP BY coalesce(r.severity, 'no severity') ORDER BY count(*) DESC, 1
    """,
    {"consumer": "s.consumer = :consumer", "stream": "s.stream = :stream"},
)
"""What stands, by severity."""


class AlarmOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of a sink that keeps episodes of alarms."""

    alarms: bool | None = None
    """Whether the store keeps the episodes of alarms (`instep_alarm`), for all its consumers; None:
    as it does already, and a new store does not."""
    alarm_names: dict[str, str] = {}
    """The normalized names of native conditions, where the provider states none (TR-548 4.9)."""
    alarm_retention_records: Annotated[int, msgspec.Meta(ge=1)] = 1_000_000
    """The number of newest episodes kept; older ones are removed once they have ended."""


class Alarms(StatementDerivation):
    """One row for each episode of an alarm, and for each event."""

    name = "alarms"
    version = "1"
    words = "episodes of alarms"
    classes = frozenset({DETECTOR})
    ends_as = frozenset({DETECTOR, "", "ANY_CLASS"})
    options = AlarmOptions
    tables = (_TABLE,)
    views = (_ALARMS, _EVENTS)
    queries: ClassVar[Mapping[str, Query]] = {"": _QUERY, "summary": _SUMMARY}

    def derive(self, statements: Statements, before: Mapping[str, Sequence[Row]]) -> Changes:
        """Open, change and end the episodes that these statements are about, in order."""
        stored = [_episode(row) for row in before[_NAME]]
        said = {one.id: (one.detector, one.ended_by) for one in stored}
        last = {one.key: one for one in stored}
        log = LogReading(
            statements.lineage,
            statements.attempt,
            statements.now_us,
            statements.compaction_delay_s,
            statements.options.alarm_names,
        )
        changed: dict[tuple[str, int], Episode] = {}
        for record in statements.records:
            episode = follow_statement(last.get(record.key), record, log)
            if episode is not None:
                last[record.key] = changed[episode.key, episode.number] = episode
                if statements.stored:
                    # It may have begun earlier: only its last statement is known.
                    episode.reduced = not episode.detector.event
        return _changes(changed.values(), said)

    def end_swept(self, table: str, rows: Sequence[Row], at_us: int) -> Changes:
        """End the episodes of what a sweep no longer found; when exactly is not known."""
        ended = [
            ("CLEAR", SWEEP, 1, NO_LINEAGE, max(at_us, row[_RAISED]), "BEFORE", row[_ID])
            for row in rows
        ]
        return Changes(updated=[Update(table, _SWEPT, ended)])

    def doubt(self, table: str, rows: Sequence[Row]) -> Changes:
        """Of what a baseline could not prove, the end may have been missed."""
        doubted = [(1, row[_ID]) for row in rows if not row[_REDUCED]]
        return Changes(updated=[Update(table, ("reduced",), doubted)])


derivation: Final = Alarms()


def _changes(
    episodes: Iterable[Episode], said: Mapping[int | None, tuple[Detector, str | None]]
) -> Changes:
    """What changes in the table; `said` is the detector and the end of those that are stored, by
    id.
    """
    inserted: list[Row] = []
    moved: list[Row] = []
    restated: list[Row] = []
    changed: list[Row] = []
    for one in episodes:
        if one.id is None:
            inserted.append((one.key, one.number, *_moved(one), *_others(one)))
            continue
        detector, ended_by = said[one.id]
        # The same object: no statement in between has been another.
        if one.detector is detector and one.ended_by == ended_by:
            moved.append((*_moved(one), one.id))
        elif one.detector.measured_uuid == detector.measured_uuid and one.ended_by == ended_by:
            restated.append((*_moved(one), *_not_indexed(_others(one)), one.id))
        else:
            changed.append((*_moved(one), *_others(one), one.id))
    return Changes(
        {_NAME: inserted},
        [
            Update(_NAME, _MOVED, moved),
            Update(_NAME, _RESTATED, restated),
            Update(_NAME, (*_MOVED, *_OTHERS), changed),
        ],
    )


_NO_TIME: Final = ApproximateTime(0)


def _moved(one: Episode) -> tuple[Any, ...]:
    """The columns `_MOVED`."""
    place = one.place
    return (
        *(one.statements, one.stated_at_us, int(one.reduced)),
        *(one.lineage, one.attempt, place.partition, place.offset, place.appended_at_us),
    )


def _others(one: Episode) -> tuple[Any, ...]:
    """The columns `_OTHERS`."""
    cleared, raised, detector = one.cleared, one.raised, one.detector
    end = cleared or _NO_TIME
    acknowledged = detector.acknowledged
    return (
        detector.state if one.ended_by is None or detector.event else "CLEAR",
        one.ended_by,
        None if cleared is None else cleared.at_us,
        *(end.from_us, end.spread, end.precision),
        *(raised.at_us, raised.from_us, raised.spread, raised.precision),
        *(one.first_raised_at_us, one.worst_severity, one.severity_changes),
        *(one.intermittent_count, one.flapping_count, one.digest),
        *(detector.state, int(detector.event)),
        *(None if acknowledged is None else int(acknowledged), detector.severity),
        *_facts(detector),
    )


_facts: Final = attrgetter(*_FACTS)


def _episode(row: Row) -> Episode:
    """An episode of a row that stands."""
    # fmt: off
    (
        id, key, number, statements, stated_at_us, reduced, lineage, attempt, partition, offset,
        appended_at_us, _, ended_by, cleared_at_us, cleared_from_us, cleared_spread,
        cleared_precision, raised_at_us, raised_from_us, raised_spread, raised_precision,
        first_raised_at_us, worst_severity, severity_changes, intermittent_count, flapping_count,
        digest, state, event, acknowledged, severity, service_affect, *facts,
    ) = row
    # By position, which takes half the time: it runs for each alarm that is stated.
    return Episode(
        key, number,
        Detector(
            state, bool(event), severity, service_affect,
            None if acknowledged is None else bool(acknowledged), *facts,
        ),
        ApproximateTime(raised_at_us, raised_from_us, raised_spread, raised_precision),
        first_raised_at_us, stated_at_us,
        RecordHeader("", key, RecordType.CREATE_UPDATE, "", appended_at_us, partition, offset),
        digest, lineage, attempt, worst_severity, severity_changes, intermittent_count, statements,
        flapping_count, bool(reduced),
        None if cleared_at_us is None else ApproximateTime(
            cleared_at_us, cleared_from_us, cleared_spread, cleared_precision
        ),
        ended_by, id,
    )
    # fmt: on


class AlarmEpisode(msgspec.Struct, frozen=True, kw_only=True):
    """One alarm from its raise to its end, or one event, which is over as it happens.

    Times are in microseconds since 1970. None: not stated by the provider.
    """

    consumer: str
    stream: str
    key: str
    """The entity-key of the detector."""
    number: int
    """Counts the episodes (or events) of the detector, from 1."""
    event: bool
    """A threshold crossing or another event that never clears (TR-548 3.9.2.5)."""
    state: str
    """ACTIVE or INTERMITTENT; CLEAR when it is over."""
    condition: str | None
    """`condition-native-name`."""
    condition_normalized: str | None
    """`condition-normalized-name`, else the one configured for the native name (4.9)."""
    severity: str | None
    """The last `perceived-severity`."""
    worst_severity: str | None
    service_affect: str | None
    acknowledged: bool | None
    """The last `is-acknowledged`."""
    info: tuple[str, ...]
    """`additional-alarm-info`."""
    raised_at_us: int
    """Event time of the raise, else its append time."""
    raised_from_us: int | None
    """Where `raised_spread` is BETWEEN: the beginning of the interval that `raised_at_us` ends."""
    raised_spread: str | None
    """AT, BEFORE, AFTER or BETWEEN (4.8)."""
    raised_precision: str | None
    """UNKNOWN, FREE_RUNNING or SYNCHRONIZED."""
    first_raised_at_us: int
    """When the first of the episodes was raised that flap, up to this one."""
    last_stated_at_us: int
    """Event time of the last statement before the end."""
    cleared_at_us: int | None
    """Event time of the end, else its append time; None while it lasts."""
    cleared_spread: str | None
    """As `raised_spread`. After a sweep BEFORE: it was gone by then."""
    cleared_precision: str | None
    ended_by: str | None
    """CLEAR, DELETE, TOMBSTONE, SWEEP or, of an event, EVENT; None while it lasts."""
    flapping_count: int
    """Raises of this detector before this one, each within 600 s of the end before it."""
    severity_changes: int
    intermittent_count: int
    """How often it became INTERMITTENT."""
    statements: int
    """Statements that it was made of, without repeated ones and the end."""
    reduced_fidelity: bool
    """Statements about it may have been missed: it may have begun earlier, have ended at another
    time, or be several (3.17.3).
    """
    measured_class: str | None
    measured_uuid: str | None
    measured_known: bool
    """Whether an entity with this uuid is stored, in any stream of the consumer."""
    measured_native_id: str | None
    measured_local_ids: tuple[str, ...]
    node_uuid: str | None
    """The node of the parent-address, or the measured node."""
    detector_type: str | None
    detector_native_id: str | None
    detector_uuid: str | None

    @property
    def standing(self) -> bool:
        """Whether the alarm has not ended yet."""
        return self.ended_by is None

    @property
    def duration_s(self) -> float | None:
        """From the raise to the end; None while it lasts."""
        if self.cleared_at_us is None:
            return None
        return (self.cleared_at_us - self.raised_at_us) / 1_000_000


async def alarms(
    reader: StoreReader,
    *,
    standing: bool | None = None,
    events: bool = False,
    key: str | None = None,
    measured: str | None = None,
    consumer: str | None = None,
    stream: str | None = None,
) -> AsyncIterator[AlarmEpisode]:
    """Episodes of alarms in the order of their first commit: those that last (`standing`), those
    that have ended (`standing=False`), or both; with `events` the events instead, which never
    clear. `key` selects a detector, `measured` the uuid of a measured entity.

    Raises `DerivationOffError` where they are not kept, `ConfigurationError` for a store that
    cannot keep them.
    """
    rows = reader.derived(
        derivation.name,
        event=int(events),
        standing=standing or None,
        ended=True if standing is False else None,
        key=key,
        measured=measured,
        consumer=consumer,
        stream=stream,
    )
    async for row in rows:
        yield _alarm(row)


_decode_texts: Final = msgspec.json.Decoder(tuple[str, ...]).decode


def _alarm(row: Mapping[str, Any]) -> AlarmEpisode:
    return AlarmEpisode(
        consumer=row["consumer"],
        stream=row["stream"],
        key=row["key"],
        number=row["number"],
        event=bool(row["event"]),
        state=row["state"],
        condition=row["condition"],
        condition_normalized=row["condition_normalized"],
        severity=row["severity"],
        worst_severity=row["worst_severity"],
        service_affect=row["service_affect"],
        acknowledged=None if row["acknowledged"] is None else bool(row["acknowledged"]),
        info=_texts(row["info"]),
        raised_at_us=row["raised_at_us"],
        raised_from_us=row["raised_from_us"],
        raised_spread=row["raised_spread"],
        raised_precision=row["raised_precision"],
        first_raised_at_us=row["first_raised_at_us"],
        last_stated_at_us=row["stated_at_us"],
        cleared_at_us=row["cleared_at_us"],
        cleared_spread=row["cleared_spread"],
        cleared_precision=row["cleared_precision"],
        ended_by=row["ended_by"],
        flapping_count=row["flapping_count"],
        severity_changes=row["severity_changes"],
        intermittent_count=row["intermittent_count"],
        statements=row["statements"],
        reduced_fidelity=bool(row["reduced"]),
        measured_class=row["measured_class"],
        measured_uuid=row["measured_uuid"],
        measured_known=bool(row["known"]),
        measured_native_id=row["measured_native_id"],
        measured_local_ids=_texts(row["measured_local_id"]),
        node_uuid=row["node_uuid"],
        detector_type=row["detector_type"],
        detector_native_id=row["detector_native_id"],
        detector_uuid=row["detector_uuid"],
    )


def _texts(stored: str | None) -> tuple[str, ...]:
    return () if stored is None else _decode_texts(stored)
