"""What it costs to prove that streams were continued (A2, A18): the real core against a model of a
log, in virtual time.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from instep import AlignmentSettings, Phase, Position
from instep.alignment.effects import EstimateSweep, ProbeOldest, Reopen
from instep.alignment.machine import Alignment
from instep.model.batches import CommitResult
from instep.model.records import RecordChunk
from instep.model.streams import Mode, Start, StreamInfo, StreamState, SweepEstimate
from tests.instep.alignment.driver_kit import KEYS, Driver, aligned
from tests.instep.alignment.model_log_kit import COMPACTION_DELAY_S, US
from tests.instep.scripted_source_kit import T0_US, info, record

__all__ = [
    "Cuts",
    "busy_cuts",
    "cleaned_tail_cuts",
    "idle_streams",
    "idle_truncated_cuts",
    "sparse_storm",
    "truncated",
]


class Cuts(NamedTuple):
    """What cut connections have cost."""

    cuts: int
    probes: int
    most_at_once: int
    """Probes of one cut."""
    attempts: int
    equal: bool
    """Whether the store holds what the log states at the end."""


def busy_cuts(partitions: int, cuts: int = 1_000) -> Cuts:
    """A busy log with offsets is cut, and followed again within the compaction delay."""
    driver = aligned(partitions)
    before = most = 0
    for cut in range(cuts):
        driver.close()
        driver.log.now_us += US
        for key in KEYS:
            driver.log.put(key)
        driver.open(rewind=0)
        for partition in range(partitions):
            driver.deliver(prefer=partition)
        if cut % 20 == 0:
            driver.wait(5.0)
            driver.log.compact()
        most, before = max(most, driver.probes - before), driver.probes
    return _cuts(driver, cuts, most)


def cleaned_tail_cuts(cuts: int = 1_000) -> Cuts:
    """The same, where the record behind ours was compacted away meanwhile."""
    driver = aligned()
    before = most = 0
    for _ in range(cuts):
        driver.wait(10.0)
        driver.close()
        for key in (*KEYS, *KEYS):
            driver.log.now_us += US
            driver.log.put(key)
        driver.log.now_us += int((COMPACTION_DELAY_S + 60) * US)
        driver.log.compact()
        driver.open()
        driver.deliver()
        most, before = max(most, driver.probes - before), driver.probes
    return _cuts(driver, cuts, most)


def _cuts(driver: Driver, cuts: int, most: int) -> Cuts:
    equal = driver.converges()
    return Cuts(cuts, driver.probes, most, driver.store.position.attempt, equal)


class Idle(NamedTuple):
    """How idle streams go on after the provider was restarted."""

    streams: int
    probes: int
    attempts: int
    """Of all, beyond the first of each."""
    settled_s: int
    """How long the last one needed, in seconds."""


def idle_streams(streams: int = 1_000) -> Idle:
    """Idle streams of a provider that was restarted, with its log."""
    driver = aligned(keys=KEYS[:2])
    oldest = driver.log.connect(Start.OLDEST).pull(1)[0]
    opened_us, probes, attempts, settled_s = driver.log.now_us + 30 * US, 0, 0, 0
    for _ in range(streams):
        core = Alignment(driver.log.info, driver.store.position, AlignmentSettings())
        core.restart_suggested()
        core.start(opened_us)
        core.opened(opened_us)
        second = 0
        while not (core.is_proven and core.durable.phase is Phase.ALIGNED):
            second += 1
            assert second < 3_600, "it never settles"
            batch = core.tick(opened_us + second * US, StreamState.ACTIVE)
            if batch is not None:
                core.committed(batch, CommitResult())
            if any(isinstance(effect, ProbeOldest) for effect in core.effects()):
                assert core.durable.phase is Phase.CONFIRMING
                probes += 1
                core.probed(oldest)
        attempts += core.durable.attempt - 1
        settled_s = max(settled_s, second)
    return Idle(streams, probes, attempts, settled_s)


def truncated(**changes: object) -> tuple[StreamInfo, Position]:
    """A stream of a truncated log that shows all by a GET, and where it stands, aligned."""
    given: dict[str, object] = {"mode": Mode.BASELINE, "readable": frozenset({"NODE"})}
    stream = info(**{**given, "record_retention_s": 3_600.0, **changes})
    position = Position(
        phase=Phase.ALIGNED, attempt=1, lineage=1, token="token-3", offsets={"0": 3},
        origin=stream.origin, attempt_started_at_us=T0_US, watermark_us=T0_US,
        appended_us={"0": T0_US + 3 * US}, appended_at_us=T0_US + 3 * US, opened_at_newest=True,
    )  # fmt: skip
    return stream, position


def idle_truncated_cuts(*, by_bytes: bool, ever: bool = True) -> tuple[int, int]:
    """An idle truncated stream that is cut every 30 s for an hour: baselines after the first one,
    and probes. `by_bytes`: its retention is one of volume, and it states no offsets. `ever`:
    whether any record of it was ever read.
    """
    stream, position = truncated(record_retention_s=None if by_bytes else 7_200.0)
    if by_bytes:
        position = msgspec.structs.replace(position, offsets={})
    if not ever:
        position = Position()
    core, now_us, probes = Alignment(stream, position), T0_US + 4 * US, 0
    for _ in range(120):
        core.start(now_us)
        core.opened(now_us)
        if core.position.phase is Phase.BASELINING:
            core.committed(core.baseline_page([]), CommitResult())
            core.baseline_read(now_us)
        for _ in range(30):
            now_us += US
            batch = core.tick(now_us, StreamState.ACTIVE)
            if batch is not None:
                core.committed(batch, CommitResult(sweep_done=batch.sweep is not None))
            effects = core.effects()
            probes += sum(isinstance(effect, ProbeOldest) for effect in effects)
            if any(isinstance(effect, EstimateSweep) for effect in effects):
                core.sweep_estimated(SweepEstimate(total=9, unmarked=0))
        core.closed()
    return core.durable.attempt - 1, probes


def sparse_storm() -> tuple[int, int]:
    """An hour of ten records a second whose offsets rise by 1 to 3 with nothing lost: baselines,
    and how often it is told that the offsets are sparse.
    """
    stream, _ = truncated()
    core, now_us, offset = Alignment(stream, Position()), T0_US, 0
    baselines, told, connected = 0, 0, False
    for second in range(3_600):
        now_us = T0_US + second * US
        if not connected:
            if isinstance(core.start(now_us), Start):
                baselines += 1
            core.opened(now_us)
            core.effects()
            if core.position.phase is Phase.BASELINING:
                core.committed(core.baseline_page([]), CommitResult())
                core.baseline_read(now_us)
            connected = True
        records = []
        for _ in range(10):
            offset += 1 + (offset * 7919 + second) % 3
            records.append(record(offset, at_s=second))
        batch = core.receive(RecordChunk(records), now_us)
        while True:
            if batch is not None:
                told += "offsets-sparse" in batch.deviations
                done = batch.sweep is not None
                core.committed(batch, CommitResult(sweep_done=done))
            effects = core.effects()
            if any(isinstance(effect, Reopen) for effect in effects):
                core.closed()
                connected = False
                break
            if any(isinstance(effect, EstimateSweep) for effect in effects):
                core.sweep_estimated(SweepEstimate(total=9, unmarked=0))
            batch = core.tick(now_us, StreamState.ACTIVE)
            if batch is None and not core.has_pending_commit:
                break
    return baselines, told
