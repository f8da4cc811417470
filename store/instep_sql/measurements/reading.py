"""Reads series of measurements."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Row, text

from instep.errors import MeasurementsOffError
from instep.model.measurements import Measurement
from instep_sql.engine.definitions import MEASUREMENTS, is_kept
from instep_sql.engine.dialect import Dialect

__all__ = ["MeasurementReading"]

T = TypeVar("T")

_PAGE_RECORDS: Final = 500
_PAGE: Final = """
    SELECT m.*, s.consumer, s.stream
    FROM instep_measurement AS m JOIN instep_stream AS s ON s.id = m.stream_no
    WHERE (m.stream_no, m.series, m.length_us, m.end_us) > (:after_no, :after, :length, :end)
    {conditions} ORDER BY m.stream_no, m.series, m.length_us, m.end_us LIMIT :size
"""
_CONDITIONS: Final = {
    "consumer": "s.consumer = :consumer",
    "stream": "s.stream = :stream",
    "series": "m.series = :series",
    "since": "m.end_us >= :since",
    "until": "m.end_us < :until",
}


class MeasurementReading(ABC):
    """The methods of a reader for measurements; see `StoreReader`."""

    _dialect: Dialect

    @abstractmethod
    async def _fetch(self, work: Callable[[Connection], T]) -> T: ...

    async def measurements(
        self,
        *,
        series: str | None = None,
        since_us: int | None = None,
        until_us: int | None = None,
        consumer: str | None = None,
        stream: str | None = None,
    ) -> AsyncIterator[Measurement]:
        """See `StoreReader`."""
        wanted = {"consumer": consumer, "stream": stream, "series": series}
        wanted_times = {"since": since_us, "until": until_us}
        given: dict[str, Any] = {
            name: one for name, one in (wanted | wanted_times).items() if one is not None
        }
        conditions = "".join(f" AND {_CONDITIONS[name]}" for name in given)
        query = text(_PAGE.format(conditions=conditions))
        given |= {"after_no": -1, "after": "", "length": 0, "end": 0, "size": _PAGE_RECORDS}

        def page(connection: Connection) -> list[Row[Any]]:
            if not is_kept(connection, MEASUREMENTS):
                raise MeasurementsOffError(
                    "the store keeps no series of measurements",
                    where=self._dialect.where,
                    hint="set measurements = true in the sink's options",
                )
            return list(connection.execute(query, given))

        while True:
            rows = await self._fetch(page)
            for row in rows:
                yield _measurement(row)
            if len(rows) < _PAGE_RECORDS:
                return
            last = rows[-1]
            given |= {"after_no": last.stream_no, "after": last.series}
            given |= {"length": last.length_us, "end": last.end_us}


def _measurement(row: Row[Any]) -> Measurement:
    return Measurement(
        consumer=row.consumer,
        stream=row.stream,
        series=row.series,
        key=row.key,
        entity_class=row._mapping["class"],  # noqa: SLF001 — SQLAlchemy's public name for it
        end_us=row.end_us,
        length_us=row.length_us,
        complete=bool(row.complete),
        suspect=None if row.suspect is None else bool(row.suspect),
        stated_at_us=row.appended_at_us,
        body=bytes(row.body),
    )
