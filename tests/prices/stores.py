"""What a million unproven entities cost in a real store, and a second connection at a real provider
(A2, A20, A22).
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from sqlite3 import connect
from typing import Any, Final, NamedTuple
from unittest.mock import patch

from msgspec.structs import replace

from instep import Phase
from instep.model.batches import SweepStep
from instep.model.holds import Hold, UnprovenReason
from instep_tapi import TapiSource
from tests.end_to_end.site_kit import provider, site
from tests.instep_sql.store_kit import Stage, create_update, stage

__all__ = ["Doubt", "Second", "one_connection", "unproven_and_again"]

_FILL: Final = """
    INSERT INTO instep_entity (stream_no, key, class, token, partition, "offset", appended_at_us,
                               lineage, attempt, proven, uuid, envelope, body)
    WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :most)
    SELECT 1, 'n' || n, 'NODE', 't' || n, '0', n, n, 1, 1, 1, '', '', '{}' FROM numbers
"""
_ROWS: Final = """
    SELECT (SELECT coalesce(max(cursor), 0) FROM instep_change)
        + (SELECT coalesce(max(id), 0) FROM instep_unproven)
        + (SELECT count(*) FROM instep_proof)
"""


_MARK: Final = "UPDATE instep_entity SET attempt = :attempt, proven = 1"


class Doubt(NamedTuple):
    """Entities that became unproven, and were proven again."""

    entities: int
    unproven: int
    """As `instep status` counts them in between …"""
    unproven_after: int
    """… and at the end."""
    unproven_s: float
    again_s: float
    rows: int
    """Written by both, of the journal and of what is kept of proofs."""


async def unproven_and_again(folder: Path, entities: int = 1_000_000) -> tuple[Doubt, Doubt]:
    """All entities of a stream: it is not offered, and offered again; and an attempt could not read
    something, while the next one met them all. Their records are not counted: a statement of SQL
    stands for them.
    """
    async with stage(f"sqlite:///{folder}/store.db", journal="changes") as at:
        await at.commit(create_update("n0", 0))
        _write(at, _FILL, most=entities - 1)
        store = at.store
        first = await _doubt(
            at,
            lambda: store.mark_offered("s1", offered=False),
            lambda: store.mark_offered("s1", offered=True),
        )
        held = Hold(UnprovenReason.UNREADABLE_RECORD, digest="ab")

        async def met() -> None:
            await _sweep(at, SweepStep(3))

        at.attempt = 2
        await at.commit()
        second = await _doubt(at, lambda: _sweep(at, SweepStep(2, holds=(held,))), met, mark=3)
    return first, second


async def _sweep(at: Stage, step: SweepStep) -> None:
    at.attempt = step.attempt
    while True:
        done = await at.commit(sweep=step)
        if done.sweep_done:
            return
        step = replace(step, cursor=done.sweep_cursor)


async def _doubt(
    at: Stage,
    doubt: Callable[[], Awaitable[None]],
    prove: Callable[[], Awaitable[None]],
    *,
    mark: int = 0,
) -> Doubt:
    before = _rows(at)
    unproven_s = await _timed(doubt)
    [status] = await at.store.reader.streams()
    if mark:
        _write(at, _MARK, attempt=mark)
    again_s = await _timed(prove)
    [after] = await at.store.reader.streams()
    rows = _rows(at) - before
    return Doubt(status.entities, status.unproven, after.unproven, unproven_s, again_s, rows)


async def _timed(work: Callable[[], Awaitable[None]]) -> float:
    began_s = time.perf_counter()
    await work()
    return time.perf_counter() - began_s


def _write(at: Stage, statement: str, **values: int) -> None:
    with closing(connect(_path(at))) as database, database:
        database.execute(statement, values)


def _rows(at: Stage) -> int:
    with closing(connect(_path(at))) as database:
        return int(database.execute(_ROWS).fetchone()[0])


def _path(at: Stage) -> str:
    return at.store.options.url.removeprefix("sqlite:///")


class Second(NamedTuple):
    """What a provider of one connection a client costs."""

    cuts: int
    probes: int
    told: int
    """Times that it is told."""
    aligned: bool


async def one_connection(folder: Path) -> Second:
    """A provider on loopback that closes the first connection of a client at its second one; cut
    three times, and each time with fifty records sent again, which is a doubt.
    """
    probes = 0
    probe = TapiSource.probe

    def counted(source: TapiSource, *given: Any) -> Any:
        nonlocal probes
        probes += 1
        return probe(source, *given)

    with patch.object(TapiSource, "probe", counted):
        async with site(provider(), folder) as here, here.consumer() as consumer:
            await consumer.aligned(60)
            here.provider.set_faults(rewind_records=50, displace_first=True)
            for state in ("DISABLED", "ENABLED", "DISABLED"):
                here.provider.drop_clients()
                here.provider.update("n1", {"operational-state": state})
                await here.equal()
                await consumer.aligned(60)
            [stream] = consumer.health().streams
            told = stream.deviations["second-connection-refused"]
            return Second(3, probes, told, stream.phase is Phase.ALIGNED)
