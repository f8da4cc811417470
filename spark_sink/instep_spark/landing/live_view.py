"""Current state computed from `changes`, in SQL that DataFusion and Spark both read.

The pipeline on Spark keeps `entities` for everybody. This module answers the few questions of the
alignment that cannot wait for it (A2, A3 and A6).

A3 is applied statement by statement. So the last statement of an entity counts, unless an earlier
one is newer: then all of them have to be compared in order. SQL finds the last statements. Python
compares in order, over the headers of the entities that need it: those of a log that goes
backwards, or that is being read again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, Literal, NamedTuple

import msgspec
import pyarrow as pa

from instep.model.entities import identity_digest
from instep.model.ordering import supersedes
from instep.model.records import Record, RecordHeader, RecordType
from instep.model.streams import SweepEstimate
from instep_spark.identity import (
    DEFAULT_ID,
    FURTHER,
    STATED,
    Entity,
    Identities,
    Resolved,
    is_address,
    names_in,
    resolve,
    uuid_in,
)
from instep_spark.lake.sql.supersede import ENTITY, OUTDATED, RECORD
from instep_spark.landing.writers.base import Writer

__all__ = ["count_unproven", "estimate_sweep", "identities", "live", "unresolved"]

_LIVE: Final = """
    SELECT {columns}, class, lineage, coalesce(folded_attempt, attempt) AS attempt, ends, partition,
        record_offset, appended_at, {proven} AS proven
    FROM (
        SELECT *, row_number() OVER (PARTITION BY {entity} ORDER BY ordinal DESC) AS place
        FROM ({stated}) AS stated
    ) AS ranked
    LEFT JOIN (VALUES {folded}) AS folds (folded, folded_attempt, folded_entity)
        ON ordinal = folded AND {entity} = folded_entity
    WHERE NOT ends AND (folded IS NULL AND place = 1 OR folded_attempt > 0) {swept}
"""
"""The statement that counts for each entity (A3), unless an end or a sweep came after it: the last
one, or the one that the comparison in order has found instead."""
_UNSETTLED: Final = """
    SELECT {entity} AS entity, ordinal, lineage, partition, record_offset, appended_at, attempt,
        class, ends, token, ordinal <= {swept} AS swept
    FROM ({stated}) AS stated
    WHERE {entity} IN (
        SELECT entity FROM (
            SELECT {entity} AS entity, max(ordinal) AS last, max(record_offset) AS farthest,
                max(appended_at) AS newest
            FROM ({stated}) AS stated GROUP BY {entity}, lineage HAVING count(*) > 1
        ) AS repeated JOIN ({stated}) AS lasts ON lasts.ordinal = repeated.last
        WHERE lasts.record_offset < repeated.farthest OR lasts.appended_at < repeated.newest
    )
    ORDER BY entity, ordinal
"""
"""The headers of the entities whose last statement may be older than one before it: by its offset
or by its append time. Where it is by neither, it counts, whatever was stored."""
_MARK: Final = "coalesce(folded_attempt, attempt)"
_FOLDED_RECORDS: Final = 10_000
_NOTHING: Final = "(-1, -1, '')"
"""An ordinal that no row has, because `VALUES` needs at least one."""
_UPTO: Final = """
    SELECT coalesce(max(ordinal), 0) AS ordinal FROM {{changes}}
    WHERE consumer = {consumer} AND stream = {stream}
"""
_STATED: Final = (
    """
    SELECT {headers}{id}, ends, true AS proven FROM {{changes}}
    WHERE consumer = {consumer} AND stream = {stream}
        AND ordinal > {followed} AND ordinal <= {upto} AND """
    + RECORD
)
_FOLLOWED: Final = """
    UNION ALL SELECT {headers}{id}, false AS ends, coalesce(proven, proven) AS proven FROM (
        SELECT * EXCEPT (lineage), CASE WHEN token = '' AND ordinal <= {swept} THEN {outdated}
            ELSE lineage END AS lineage FROM {{entities}}
    ) AS entities
    WHERE consumer = {consumer} AND stream = {stream}
"""
"""What a baseline had read when the last sweep was made compares with nothing (A14)."""


def _coalesced(sql: str, name: str) -> str:
    """An expression, because DataFusion refuses a UNION of columns that have comments."""
    return f"coalesce({sql}, {sql}) AS {name}"


_HEADER: Final = (
    *("ordinal", "key", "uuid", "token", "class", "lineage", "attempt", "partition"),
    *("record_offset", "appended_at"),
)
_NAMES: Final = ", ".join(_HEADER)
_HEADERS: Final = ", ".join(_coalesced(name, name) for name in _HEADER)
_TOLD: Final = tuple(name for name in STATED if name != "ends")
_NAMED: Final = 1_000
"""So many names of entities a query has at most; where more are asked for, all are read."""
_NAMES_UUIDS: Final = """
    SELECT uuid FROM ({stated}) AS stated WHERE uuid <> '' LIMIT 1
"""
_IDENTIFIED: Final = """
    SELECT {headers}, coalesce(known_id, {default}) AS id, ends, proven FROM ({stated}) AS stated
    LEFT JOIN (VALUES {resolved}) AS ids (resolved, known_id) ON ordinal = resolved
"""
_ROWS: Final = (
    """
    SELECT {columns}, ends FROM {{changes}}
    WHERE consumer = {consumer} AND stream = {stream}
        AND ordinal > {followed} AND ordinal <= {upto} AND """
    + ENTITY
    + """
    ORDER BY ordinal
"""
)
_ENTITIES: Final = """
    SELECT {columns}, id FROM {{entities}}
    WHERE consumer = {consumer} AND stream = {stream} AND uuid <> '' {named} ORDER BY ordinal
"""
_SWEEPS: Final = """
    SELECT ordinal, attempt FROM {{changes}}
    WHERE consumer = {consumer} AND stream = {stream}
        AND ordinal > {followed} AND ordinal <= {upto} AND kind = 'SWEEP'
"""
_READABLE: Final = """
    SELECT ordinal, attempt, body FROM {{changes}}
    WHERE consumer = {consumer} AND stream = {stream} AND ordinal IN ({ordinals}) ORDER BY ordinal
"""
"""Apart from `_SWEEPS`, which would read the bodies of all rows to find those of a few."""
_SWEEP_ESTIMATE: Final = """
    SELECT class, count(*) AS total,
        sum(CASE WHEN attempt < {attempt} THEN 1 ELSE 0 END) AS unmarked
    FROM ({live}) AS live GROUP BY class
"""
_UNPROVEN: Final = "SELECT count(*) AS records FROM ({live}) AS live WHERE NOT proven"
_KNOWN: Final = """
    SELECT DISTINCT key, uuid, parent_address FROM {{changes}}
    WHERE consumer = {consumer} AND stream = {stream} AND NOT ends
        AND (key IN ({names}) OR uuid IN ({names}))
"""


def live(writer: Writer, consumer: str, stream: str, columns: str = "ordinal") -> str:
    """The query of the live entities of a stream: their newest statements.

    Where the pipeline keeps `entities`, they are these and what was landed since: how long that
    takes depends on how many entities there are, and not on how long the lake has been kept.

    Where statements name uuids (a stream that is joined with a baseline), it is read in order which
    of them are about one entity (A13).
    """
    names: dict[str, Any] = {"consumer": writer.text(consumer), "stream": writer.text(stream)}
    # Several questions follow: they are about the same rows, whatever is landed meanwhile.
    names["upto"] = writer.query(_UPTO.format(**names))["ordinal"][0].as_py()
    progress = writer.pipeline_progress(consumer, stream)
    names["followed"] = progress.ordinal
    names["swept"] = progress.swept
    landed = _STATED.format(headers=_HEADERS, id="", **names)
    stated, entity = landed + _stored(names, ""), "key"
    if len(writer.query(_NAMES_UUIDS.format(stated=stated))) > 0:
        resolved = [f"({one.ordinal}, {writer.text(one.id)})" for one in _resolved(writer, names)]
        stated = _IDENTIFIED.format(
            headers=_NAMES,
            default=DEFAULT_ID,
            stated=landed,
            resolved=", ".join(resolved or ["(-1, '')"]),
        )
        stated, entity = stated + _stored(names, ", coalesce(id, id) AS id"), "id"
    sweeps = _find_sweeps(writer, names)
    swept = progress.swept
    unsettled = writer.query(_UNSETTLED.format(entity=entity, stated=stated, swept=swept))
    folded = [
        f"({ordinal}, {attempt}, {writer.text(entity_id)})"
        for ordinal, attempt, entity_id in _latest_by_a3(unsettled, sweeps)
    ]
    return _LIVE.format(
        columns=columns,
        entity=entity,
        stated=stated,
        folded=", ".join([_NOTHING, *folded]),
        proven=f"((proven OR {_MARK} > attempt) {_unproven(writer, sweeps)})",
        swept=_swept(writer, sweeps),
    )


def _stored(names: Mapping[str, Any], more: str) -> str:
    """SQL: the entities that the pipeline keeps, with `more` columns, to be added to a query."""
    if not names["followed"]:
        return ""
    return _FOLLOWED.format(headers=_HEADERS, outdated=OUTDATED, id=more, **names)


def _resolved(writer: Writer, names: Mapping[str, Any]) -> list[Resolved]:
    """Find the ids of the landed rows that the pipeline has not followed yet, where a row alone
    does not tell it: (ordinal, id).
    """
    columns = ", ".join(_coalesced(FURTHER if c == "envelope" else c, c) for c in _TOLD)
    landed = writer.query(_ROWS.format(columns=columns, **names))
    batches = landed.to_batches(_FOLDED_RECORDS)
    known = Identities()
    if names["followed"]:
        asked = names_in(row for batch in batches for row in batch.to_pylist())
        named = ""
        if len(asked) <= _NAMED:
            texts = ", ".join(map(writer.text, sorted(asked))) or "''"
            named = f"AND (key IN ({texts}) OR uuid IN ({texts}) OR id IN ({texts}))"
        stored = writer.query(_ENTITIES.format(columns=columns, named=named, **names))
        for batch in stored.to_batches(_FOLDED_RECORDS):
            for row in batch.to_pylist():
                known.load(Entity.stored(row))
    return [one for batch in batches for one in resolve(known, batch.to_pylist())[0]]


class _Sweep(NamedTuple):
    """A row SWEEP: what `attempt` has not marked ends, of the `readable` classes; None: of all."""

    ordinal: int
    attempt: int
    readable: frozenset[str] | None

    def removes(self, attempt: int, entity_class: str) -> bool:
        """Whether the sweep removes an entity that this attempt marked."""
        return attempt < self.attempt and (self.readable is None or entity_class in self.readable)


def _find_sweeps(writer: Writer, names: dict[str, Any]) -> list[_Sweep]:
    """Return the sweeps that the pipeline has not followed yet, in order."""
    found = writer.query(_SWEEPS.format(**names))["ordinal"].to_pylist()
    if not found:
        return []
    query = _READABLE.format(ordinals=", ".join(map(str, found)), **names)
    return [
        _Sweep(row["ordinal"], row["attempt"], _readable(row["body"]))
        for row in writer.query(query).to_pylist()
    ]


def _readable(body: str | None) -> frozenset[str] | None:
    return None if body is None else frozenset(msgspec.json.decode(body)["readable"])


def _swept(writer: Writer, sweeps: Sequence[_Sweep]) -> str:
    """SQL: the entity is not removed by these sweeps."""
    return "".join(
        f" AND ({_names(writer, readable, 'NOT IN')} OR {_MARK} >= {attempt})"
        for readable, attempt in _attempts(sweeps).items()
    )


def _unproven(writer: Writer, sweeps: Sequence[_Sweep]) -> str:
    """SQL: the entity is not one that these sweeps have left without knowing of it (A22)."""
    return "".join(
        f" AND ({_names(writer, readable, 'IN')} OR {_MARK} >= {attempt})"
        for readable, attempt in _attempts(sweeps).items()
    )


def _attempts(sweeps: Sequence[_Sweep]) -> dict[frozenset[str] | None, int]:
    """The last attempt that could read these classes and no others."""
    attempts: dict[frozenset[str] | None, int] = {}
    for sweep in sweeps:
        attempts[sweep.readable] = max(sweep.attempt, attempts.get(sweep.readable, 0))
    return attempts


def _names(writer: Writer, readable: frozenset[str] | None, how: Literal["IN", "NOT IN"]) -> str:
    """SQL: the class is, or is not, among these; None: all are."""
    if not readable:
        return str((readable is None) == (how == "IN")).lower()
    return f"class {how} ({', '.join(map(writer.text, sorted(readable)))})"


def _latest_by_a3(unsettled: pa.Table, sweeps: Sequence[_Sweep]) -> Iterator[tuple[int, int, str]]:
    """Find the statement that counts for each entity by A3, given its headers in the order of
    commit.

    Yields the ordinal of each such statement with the attempt that marked the entity, and the
    entity; and, with an attempt of -1, the ordinal of each last statement that does not count.
    """
    for entity, statements in groupby(_read_headers(unsettled), attrgetter("entity")):
        stored: _Header | None = None
        marked = last = 0
        pending = iter(sweeps)
        sweep = next(pending, None)
        for one in statements:
            while sweep is not None and sweep.ordinal < one.ordinal:
                if stored is not None and sweep.removes(marked, stored.entity_class):
                    stored = None
                elif stored is not None:
                    # What a baseline had read compares with nothing; and all that is stored is to
                    # the next baseline like another one (A14).
                    lineage = OUTDATED if stored.shown else stored.lineage
                    stored = stored._replace(lineage=lineage, gives_way=True)
                sweep = next(pending, None)
            if stored is None or not (
                stored.lineage == one.lineage
                and supersedes(stored.place, one.place)
                and not (stored.gives_way and one.shown)  # of two baselines the later one (A14)
            ):
                stored, marked = None if one.ends else one, one.attempt
            elif one.shown:
                # A baseline marks what it shows to exist, also where the content is newer.
                marked = max(marked, one.attempt)
            last = one.ordinal
        if stored is None or stored.ordinal != last:
            yield last, -1, entity
        if stored is not None:
            yield stored.ordinal, marked, entity


class _Header(NamedTuple):
    """The fields of a statement that the comparison by A3 needs."""

    entity: str
    ordinal: int
    lineage: int
    attempt: int
    entity_class: str
    ends: bool
    shown: bool
    """Whether a baseline showed the entity."""
    gives_way: bool
    """Whether a baseline read it, or a sweep was made since: the next baseline is newer."""
    place: RecordHeader


def _read_headers(unsettled: pa.Table) -> Iterator[_Header]:
    for batch in unsettled.to_batches(_FOLDED_RECORDS):
        at_us = batch["appended_at"].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist()
        for row, appended_at_us in zip(
            batch.drop_columns("appended_at").to_pylist(), at_us, strict=True
        ):
            shown = not row["token"] and not row["ends"]
            yield _Header(
                row["entity"],
                row["ordinal"],
                row["lineage"],
                row["attempt"],
                row["class"],
                row["ends"],
                shown,
                shown or row["swept"],
                RecordHeader(
                    "",
                    "",
                    RecordType.CREATE_UPDATE,
                    "",
                    appended_at_us,
                    row["partition"],
                    row["record_offset"],
                ),
            )


def estimate_sweep(writer: Writer, consumer: str, stream: str, attempt: int) -> SweepEstimate:
    """Count entities, and those that no attempt from `attempt` on has marked (A6)."""
    query = _SWEEP_ESTIMATE.format(attempt=attempt, live=live(writer, consumer, stream))
    found = writer.query(query).to_pylist()
    by_class = {row["class"]: (row["total"], int(row["unmarked"] or 0)) for row in found}
    return SweepEstimate(
        sum(total for total, _ in by_class.values()),
        sum(unmarked for _, unmarked in by_class.values()),
        by_class,
    )


def count_unproven(writer: Writer, consumer: str, stream: str) -> int:
    """How many entities of a stream the last sweep has left without knowing of them (A22)."""
    query = _UNPROVEN.format(live=live(writer, consumer, stream))
    return int(writer.query(query)["records"][0].as_py())


def identities(
    writer: Writer, consumer: str, stream: str, *, proven_only: bool = False
) -> frozenset[int]:
    """What is landed of a stream, as `identity_digest` names it (A20)."""
    query = live(writer, consumer, stream, "key, uuid")
    if proven_only:
        query = f"SELECT * FROM ({query}) AS live WHERE proven"
    found = writer.query(query)
    columns = [found[name].to_pylist() for name in ("class", "uuid", "key")]
    return frozenset(map(identity_digest, *columns))


def unresolved(
    writer: Writer, consumer: str, stream: str, records: Sequence[Record]
) -> tuple[str, ...]:
    """Keys of header-only ends that name nothing that was stated before (TRUNCATED logs): the
    baseline may know it by its uuid, which such an end does not carry.
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
    wanted = {name for key in asked for name in (key, uuid_in(key))} - {""}
    names = ", ".join(map(writer.text, sorted(wanted)))
    query = _KNOWN.format(consumer=writer.text(consumer), stream=writer.text(stream), names=names)
    found = writer.query(query).to_pylist()
    known = {name for row in found for name in (row["key"], row["uuid"])}
    known.update(
        key
        for row in found
        for key in asked
        if row["uuid"] == uuid_in(key) and is_address(key, row["parent_address"])
    )
    return tuple(key for key in asked if key not in known)
