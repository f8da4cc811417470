"""What current state follows from `changes`, as SQL that DataFusion and Spark both read.

The pipeline on Spark keeps `entities` for everybody; here are the few questions of the alignment
that cannot wait for it (A2, A3 and A6).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from instep.model.records import Record, RecordHeader
from instep.model.streams import SweepEstimate
from instep_spark.landing.writers.base import Writer

__all__ = ["estimate_sweep", "has_older_entity", "live", "unresolved"]

_LIVE: Final = """
    SELECT * FROM (
        SELECT {columns}, class, lineage, attempt, ends, partition, record_offset, appended_at,
            row_number() OVER (PARTITION BY {entity} ORDER BY lineage DESC, appended_at DESC,
                record_offset DESC, ordinal DESC) AS place
        FROM ({stated}) AS stated
    ) AS ranked
    WHERE place = 1 AND NOT ends {swept}
"""
"""The newest statement of each entity (A3) that no end and no sweep has come after."""
_STATED: Final = """
    SELECT {headers}, ends FROM {{changes}}
    WHERE consumer = {consumer} AND stream = {stream} AND ordinal > {followed}
        AND kind IN ('CREATE_UPDATE', 'DELETE', 'TOMBSTONE')
"""
_FOLLOWED: Final = """
    UNION ALL SELECT {headers}, false AS ends FROM {{entities}}
    WHERE consumer = {consumer} AND stream = {stream}
"""
_HEADERS: Final = (
    "ordinal, key, uuid, token, class, lineage, attempt, partition, record_offset, appended_at"
)
_NAMED: Final = "SELECT *, max(uuid) OVER (PARTITION BY key) AS named FROM ({stated}) AS every"
_NAMES_UUIDS: Final = "SELECT uuid FROM ({stated}) AS stated WHERE uuid <> '' LIMIT 1"
_SWEEPS: Final = """
    SELECT ordinal, attempt FROM {{changes}}
    WHERE consumer = {consumer} AND stream = {stream} AND ordinal > {followed} AND kind = 'SWEEP'
"""
_READABLE: Final = """
    SELECT body, max(attempt) AS attempt FROM {{changes}}
    WHERE consumer = {consumer} AND stream = {stream} AND ordinal IN ({ordinals}) GROUP BY body
"""
"""Apart from `_SWEEPS`, which would read the bodies of all rows to find those of a few."""
_SWEEP_ESTIMATE: Final = """
    SELECT count(*) AS total, sum(CASE WHEN attempt < {attempt} THEN 1 ELSE 0 END) AS unmarked
    FROM ({live}) AS live
"""
_HAS_OLDER_ENTITY: Final = """
    SELECT count(*) AS held FROM ({live}) AS live
    WHERE lineage = {lineage} AND token <> '' AND partition = {partition}
        AND CASE WHEN record_offset >= 0 AND {offset} >= 0 THEN record_offset < {offset}
                 ELSE appended_at < {appended_at} END
"""
_KNOWN: Final = """
    SELECT DISTINCT key, uuid FROM {{changes}}
    WHERE consumer = {consumer} AND stream = {stream} AND NOT ends
        AND (key IN ({names}) OR uuid IN ({names}))
"""


def live(writer: Writer, consumer: str, stream: str, columns: str = "ordinal") -> str:
    """The query of the live entities of a stream: their newest statements.

    Where the pipeline keeps `entities`, they are these and what was landed since: how long that
    takes depends on how many entities there are, and not on how long the lake has been kept.

    Where statements name uuids (a stream that is aligned from a baseline), rows of one uuid are one
    entity, and so are those of its keys.
    """
    names = {"consumer": writer.text(consumer), "stream": writer.text(stream)}
    followed = writer.pipeline_ordinal(consumer, stream)
    stated = _STATED.format(headers=_HEADERS, followed=followed, **names)
    if followed:
        stated += _FOLLOWED.format(headers=_HEADERS, **names)
    joined = len(writer.query(_NAMES_UUIDS.format(stated=stated))) > 0
    return _LIVE.format(
        columns=columns,
        entity="CASE WHEN named <> '' THEN named ELSE key END" if joined else "key",
        stated=_NAMED.format(stated=stated) if joined else stated,
        swept=_swept(writer, names, followed),
    )


def _swept(writer: Writer, names: dict[str, str], followed: int) -> str:
    """SQL: what the sweeps after `followed` leave."""
    sweeps = writer.query(_SWEEPS.format(followed=followed, **names))["ordinal"].to_pylist()
    if not sweeps:
        return ""
    ordinals = ", ".join(map(str, sweeps))
    left = ""
    for row in writer.query(_READABLE.format(ordinals=ordinals, **names)).to_pylist():
        stays = f" OR attempt >= {row['attempt']}"
        if row["body"] is None:
            left += f" AND (false{stays})"
        else:
            readable = msgspec.json.decode(row["body"])["readable"]
            classes = ", ".join(map(writer.text, readable)) or "''"
            left += f" AND (class NOT IN ({classes}){stays})"
    return left


def estimate_sweep(writer: Writer, consumer: str, stream: str, attempt: int) -> SweepEstimate:
    """Count entities, and those that no attempt from `attempt` on has marked (A6)."""
    query = _SWEEP_ESTIMATE.format(attempt=attempt, live=live(writer, consumer, stream))
    row: dict[str, Any] = writer.query(query).to_pylist()[0]
    return SweepEstimate(total=row["total"], unmarked=int(row["unmarked"] or 0))


def has_older_entity(
    writer: Writer, consumer: str, stream: str, record: RecordHeader, lineage: int
) -> bool:
    """Whether an entity of this lineage is stored whose record lies before this one (A2)."""
    query = _HAS_OLDER_ENTITY.format(
        live=live(writer, consumer, stream, "token"),
        lineage=lineage,
        partition=writer.text(record.partition),
        offset=record.offset,
        appended_at=writer.timestamp(record.appended_at_us),
    )
    return bool(writer.query(query)["held"][0].as_py())


def unresolved(
    writer: Writer, consumer: str, stream: str, records: Sequence[Record]
) -> tuple[str, ...]:
    """Keys of header-only ends that name nothing that was stated before (TRUNCATED logs): the
    baseline may know it by its uuid, which such an end does not tell.
    """
    stated: set[str] = set()
    asked: list[str] = []
    for record in records:
        if record.ends and not record.uuid and not record.body and record.key not in stated:
            asked.append(record.key)
        elif not record.ends:
            stated.update((record.key, record.uuid))
    if not asked:
        return ()
    names = ", ".join(map(writer.text, asked))
    query = _KNOWN.format(consumer=writer.text(consumer), stream=writer.text(stream), names=names)
    known = {name for row in writer.query(query).to_pylist() for name in row.values()}
    return tuple(key for key in asked if key not in known)
