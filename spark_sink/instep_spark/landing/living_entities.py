"""The entities that exist by what is landed, for streams that state changes: a CHANGE of one that
does not is not landed (TR-548 5.2 of v3.2). They are read from the table once, and followed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from instep.alignment.change_only import stated_uuid
from instep.model.columns import all_whole
from instep.model.json_merge import prefixes
from instep.model.records import Record, RecordType
from instep_spark.landing.live_view import live
from instep_spark.landing.writers.base import Writer

__all__ = ["LivingEntities"]

_ENDED: Final = """
    SELECT DISTINCT key, uuid FROM {{changes}}
    WHERE consumer = {consumer} AND stream = {stream} AND ends AND attempt >= {attempt}
        AND (key IN ({names}) OR uuid IN ({names}))
"""


class _Living(msgspec.Struct):
    uuids: dict[str, str]
    """By key; empty where none is known."""
    names: set[str]
    """Keys and uuids."""


class LivingEntities:
    """The entities of the streams of one consumer."""

    def __init__(self, writer: Writer, consumer: str) -> None:
        self._writer = writer
        self._consumer = consumer
        self._by_stream: dict[str, _Living] = {}

    def forget(self, stream: str) -> None:
        """Read the table again when it is asked next."""
        self._by_stream.pop(stream, None)

    def unknown(self, stream: str, records: Sequence[Record], attempt: int) -> list[Record]:
        """The CHANGEs among these records whose entities neither exist nor are known to have ended,
        since the attempt before this one.
        """
        if all_whole(records):
            return []
        living = self._of(stream).names
        stated: dict[str, bool] = {}
        found: dict[str, list[Record]] = {}
        for record in records:
            names = {record.key, stated_uuid(record)} - {""}
            if record.ends or record.kind is not RecordType.CHANGE:
                stated |= dict.fromkeys(names, not record.ends)
                found.pop(record.key, None)
            elif stated.get(record.key) is not False:
                names |= set(prefixes(record.key))
                if not any(stated.get(name, name in living) for name in names):
                    found.setdefault(record.key, []).append(record)
        ended = self._ended(stream, found, attempt) if found else set()
        return [
            one
            for changes in found.values()
            for one in changes
            if ended.isdisjoint((one.key, stated_uuid(one)))
        ]

    def landed(self, stream: str, records: Sequence[Record], *, swept: bool) -> None:
        """Follow what is landed now."""
        living = self._by_stream.get(stream)
        if living is None:
            return
        if swept:
            self.forget(stream)
            return
        for record in records:
            if record.ends:
                living.names -= {record.key, living.uuids.pop(record.key, "")}
            else:
                living.uuids[record.key] = record.uuid or living.uuids.get(record.key, "")
                living.names |= {record.key, record.uuid} - {""}

    def _of(self, stream: str) -> _Living:
        found = self._by_stream.get(stream)
        if found is None:
            rows = self._writer.query(live(self._writer, self._consumer, stream, "key, uuid"))
            keys, uuids = (rows[name].to_pylist() for name in ("key", "uuid"))
            found = _Living(dict(zip(keys, uuids, strict=True)), {*keys, *uuids} - {""})
            self._by_stream[stream] = found
        return found

    def _ended(self, stream: str, found: dict[str, list[Record]], attempt: int) -> set[str]:
        names = {name for one in found.values() for name in (one[0].key, stated_uuid(one[0]))}
        text = self._writer.text
        query = _ENDED.format(
            consumer=text(self._consumer),
            stream=text(stream),
            attempt=attempt - 1,
            names=", ".join(map(text, sorted(names - {""}))),
        )
        rows = self._writer.query(query)
        return {name for row in rows.to_pylist() for name in row.values()} - {""}
