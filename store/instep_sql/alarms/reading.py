"""Reads episodes of alarms and events (TR-548 4)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, TypeVar

import msgspec
from sqlalchemy import Connection, Row, text

from instep.errors import AlarmsOffError
from instep.model.alarms import AlarmEpisode
from instep_sql.engine.definitions import ALARMS, is_kept
from instep_sql.engine.dialect import Dialect

__all__ = ["AlarmReading"]

T = TypeVar("T")

_PAGE_RECORDS: Final = 500
_decode_texts: Final = msgspec.json.Decoder(tuple[str, ...]).decode
_PAGE: Final = """
    SELECT a.*, s.consumer, s.stream,
           CASE WHEN EXISTS (
               SELECT 1 FROM instep_stream AS o JOIN instep_entity AS e ON e.stream_no = o.id
               WHERE o.consumer = s.consumer AND e.uuid = a.measured_uuid AND e.uuid <> '')
           THEN 1 ELSE 0 END AS known
    FROM instep_alarm AS a JOIN instep_stream AS s ON s.id = a.stream_no
    WHERE a.id > :after AND a.event = :event {conditions} ORDER BY a.id LIMIT :size
"""
_CONDITIONS: Final = {
    "consumer": "s.consumer = :consumer",
    "stream": "s.stream = :stream",
    "key": "a.key = :key",
    "measured": "a.measured_uuid = :measured",
}


class AlarmReading(ABC):
    """The methods of a reader for alarms; see `StoreReader`."""

    _dialect: Dialect

    @abstractmethod
    async def _fetch(self, work: Callable[[Connection], T]) -> T: ...

    async def alarms(
        self,
        *,
        standing: bool | None = None,
        events: bool = False,
        key: str | None = None,
        measured: str | None = None,
        consumer: str | None = None,
        stream: str | None = None,
    ) -> AsyncIterator[AlarmEpisode]:
        """See `StoreReader`."""
        wanted = {"consumer": consumer, "stream": stream, "key": key, "measured": measured}
        given: dict[str, Any] = {name: one for name, one in wanted.items() if one is not None}
        conditions = [_CONDITIONS[name] for name in given]
        if standing is not None:
            conditions.append(f"a.ended_by IS {'' if standing else 'NOT '}NULL")
        query = text(_PAGE.format(conditions="".join(f" AND {one}" for one in conditions)))
        given |= {"after": -1, "size": _PAGE_RECORDS, "event": int(events)}

        def page(connection: Connection) -> list[Row[Any]]:
            if not is_kept(connection, ALARMS):
                raise AlarmsOffError(
                    "the store keeps no episodes of alarms",
                    where=self._dialect.where,
                    hint="set alarms = true in the sink's options",
                )
            return list(connection.execute(query, given))

        while True:
            rows = await self._fetch(page)
            for row in rows:
                yield _alarm(row)
            if len(rows) < _PAGE_RECORDS:
                return
            given["after"] = rows[-1].id


def _alarm(row: Row[Any]) -> AlarmEpisode:
    return AlarmEpisode(
        consumer=row.consumer,
        stream=row.stream,
        key=row.key,
        number=row.number,
        event=bool(row.event),
        state=row.state,
        condition=row.condition,
        condition_normalized=row.condition_normalized,
        severity=row.severity,
        worst_severity=row.worst_severity,
        service_affect=row.service_affect,
        acknowledged=None if row.acknowledged is None else bool(row.acknowledged),
        info=_texts(row.info),
        raised_at_us=row.raised_at_us,
        raised_from_us=row.raised_from_us,
        raised_spread=row.raised_spread,
        raised_precision=row.raised_precision,
        first_raised_at_us=row.first_raised_at_us,
        last_stated_at_us=row.stated_at_us,
        cleared_at_us=row.cleared_at_us,
        cleared_spread=row.cleared_spread,
        cleared_precision=row.cleared_precision,
        ended_by=row.ended_by,
        flapping_count=row.flapping_count,
        severity_changes=row.severity_changes,
        intermittent_count=row.intermittent_count,
        statements=row.statements,
        reduced_fidelity=bool(row.reduced),
        measured_class=row.measured_class,
        measured_uuid=row.measured_uuid,
        measured_known=bool(row.known),
        measured_native_id=row.measured_native_id,
        measured_local_ids=_texts(row.measured_local_id),
        node_uuid=row.node_uuid,
        detector_type=row.detector_type,
        detector_native_id=row.detector_native_id,
        detector_uuid=row.detector_uuid,
    )


def _texts(stored: str | None) -> tuple[str, ...]:
    return () if stored is None else _decode_texts(stored)
