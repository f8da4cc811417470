"""An audit of a store that was corrupted behind instep's back, while the provider storms (TR-548
ST-2.3): all is found, nobody falsely accused, all repaired.

The provider is a process of its own, so that the memory shown is that of consumer, store and audit.

Run by hand for many entities: `python -m tests.crash.audit --entities 1000000`, and for logs that
do not state them whole: `--log truncated`, `--log change-only`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import random
import resource
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from instep import AlignmentSettings, Consumer, ConsumerSettings
from instep.alignment.audit import AuditReport, Finding
from instep_sql import SqlStore
from instep_tapi.facts.names import LogRecordStrategy, LogStorageStrategy
from instep_tapi.plugin import source
from instep_tapi_provider import Provider, ProviderSettings, StreamSettings
from tests.end_to_end.site_kit import network

SETTINGS = ConsumerSettings(alignment=AlignmentSettings(quiet_s=0.5, unreached_quiet_s=2.0))
STORM_KEYS = 300
"""The storm is over the first entities; the others are corrupted."""
ALIGNED_S = 3600.0
PORTS = 14
LOGS: dict[str, dict[str, Any]] = {
    "compacted": {},
    "truncated": {"storage": LogStorageStrategy.TRUNCATED},
    "change-only": {"record_strategy": LogRecordStrategy.CHANGE_ONLY},
}


@dataclass
class AuditRun:
    """The result of an audit run."""

    corrupted: dict[str, str] = field(default_factory=dict)
    """Entity-key to what the audit should find."""
    found: dict[str, str] = field(default_factory=dict)
    first: AuditReport | None = None
    second: AuditReport | None = None
    """The same again, after the repair."""
    entities: int = 0
    differences: int = 0
    aligned_s: float = 0.0
    audited_s: float = 0.0
    peak_aligned_bytes: int = 0
    peak_bytes: int = 0


def _serve(pipe: Connection, log: str, entities: int, changes_per_s: float) -> None:
    async def serving() -> None:
        nodes = max(STORM_KEYS, entities // (PORTS + 1))
        settings = ProviderSettings(streams=(StreamSettings("all", **LOGS[log]),))
        async with Provider(network(nodes, PORTS), settings) as provider:
            pipe.send(provider.url)
            await provider.start_storm(changes_per_s, STORM_KEYS)
            await asyncio.to_thread(pipe.recv)
            await provider.stop_storm()
            truth = provider.entities("all").items()
            pipe.send({key: _digest(body) for key, (_, body) in truth})
            await asyncio.to_thread(pipe.recv)

    asyncio.run(serving())


def _digest(body: bytes) -> bytes:
    meant = json.dumps(json.loads(body), sort_keys=True)
    return blake2b(meant.encode(), digest_size=8).digest()


@contextlib.contextmanager
def provider(log: str, entities: int, changes_per_s: float) -> Iterator[Connection]:
    """A provider in a process of its own. It first sends its URL, and its truth when asked."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(
        target=_serve, args=(theirs, log, entities, changes_per_s), daemon=True
    )
    process.start()
    try:
        yield ours
    finally:
        process.terminate()
        process.join()


def corrupt(file: Path, share: float, rng: random.Random) -> dict[str, str]:
    """Remove, alter and add rows; returns what an audit should find."""
    with contextlib.closing(sqlite3.connect(file, timeout=60)) as raw, raw:
        rows = "SELECT key FROM instep_entity WHERE class = 'NODE_EDGE_POINT' ORDER BY key"
        keys = [key for (key,) in raw.execute(rows) if int(key[1:].partition("p")[0]) >= STORM_KEYS]
        chosen = rng.sample(keys, max(3, int(len(keys) * share)))
        third = len(chosen) // 3
        missing, stale, twins = chosen[:third], chosen[third : 2 * third], chosen[2 * third :]
        # The store has one stream.
        one = "WHERE stream_no = 1 AND key = ?"
        raw.executemany(f"DELETE FROM instep_entity {one}", [(key,) for key in missing])
        altered = f"UPDATE instep_entity SET body = CAST('{{}}' AS BLOB) {one}"
        raw.executemany(altered, [(key,) for key in stale])
        columns = (
            'stream_no, class, token, partition, "offset", appended_at_us, lineage, attempt,'
            " proven, uuid, envelope, body"
        )
        raw.executemany(
            f"INSERT INTO instep_entity (key, {columns}) SELECT 'ghost-' || key, {columns}"
            f" FROM instep_entity {one}",
            [(key,) for key in twins],
        )
        # A row of a baseline is known by its uuid, too.
        raw.execute("UPDATE instep_entity SET uuid = key WHERE key LIKE 'ghost-%' AND uuid <> ''")
    found = dict.fromkeys(missing, "missing") | dict.fromkeys(stale, "stale")
    return found | {f"ghost-{key}": "bogus" for key in twins}


async def audited(
    folder: Path, *, log: str, entities: int, share: float, changes_per_s: float, seed: int
) -> AuditRun:
    """Align, corrupt, audit with repair, audit again, compare."""
    outcome = AuditRun()
    file = folder / "store.db"
    with provider(log, entities, changes_per_s) as pipe:
        url = await asyncio.to_thread(pipe.recv)
        built = source.build({"endpoints": [url]}, "audit")
        async with Consumer("audit", built, SqlStore(f"sqlite:///{file}"), SETTINGS) as consumer:
            began_s = time.monotonic()
            await consumer.aligned(ALIGNED_S)
            outcome.aligned_s = time.monotonic() - began_s
            outcome.peak_aligned_bytes = _peak_bytes()
            outcome.corrupted = corrupt(file, share, random.Random(seed))

            def note(finding: Finding) -> None:
                outcome.found[finding.key] = finding.verdict

            began_s = time.monotonic()
            [outcome.first] = await consumer.audit(repair=True, found=note)
            outcome.audited_s = time.monotonic() - began_s
            outcome.peak_bytes = _peak_bytes()
            [outcome.second] = await consumer.audit()
            pipe.send("calm")
            truth: dict[str, bytes] = await asyncio.to_thread(pipe.recv)
            held = _held(file)
            for _ in range(100):
                if held == truth:
                    break
                await asyncio.sleep(0.2)
                held = _held(file)
            outcome.entities = len(truth)
            outcome.differences = len(held.items() ^ truth.items())
    return outcome


def _held(file: Path) -> dict[str, bytes]:
    with contextlib.closing(sqlite3.connect(file)) as raw:
        rows = raw.execute("SELECT key, body FROM instep_entity")
        return {key: _digest(body) for key, body in rows}


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", choices=LOGS, default="compacted")
    parser.add_argument("--entities", type=int, default=1_000_000)
    parser.add_argument("--share", type=float, default=0.01, help="of them that are corrupted")
    parser.add_argument("--storm", type=float, default=100.0, help="changes per second")
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    chosen = parser.parse_args()
    print(f"seed {chosen.seed}")
    with tempfile.TemporaryDirectory(prefix="instep-audit-") as name:
        outcome = asyncio.run(
            audited(
                Path(name),
                log=chosen.log,
                entities=chosen.entities,
                share=chosen.share,
                changes_per_s=chosen.storm,
                seed=chosen.seed,
            )
        )
    missed = outcome.corrupted.items() - outcome.found.items()
    falsely = outcome.found.keys() - outcome.corrupted.keys()
    print(
        f"{outcome.entities:,} entities aligned in {outcome.aligned_s:,.0f} s, audited and repaired"
        f" in {outcome.audited_s:,.0f} s under a storm; corrupted {len(outcome.corrupted):,},"
        f" missed {len(missed):,}, falsely accused {len(falsely):,}; differences at the end"
        f" {outcome.differences:,}; peak memory {outcome.peak_aligned_bytes / 2**20:,.0f} MiB"
        f" aligned, {outcome.peak_bytes / 2**20:,.0f} MiB audited"
    )
    print(outcome.first)
    print(outcome.second)
    return 0 if not (missed or falsely or outcome.differences) else 1


if __name__ == "__main__":
    sys.exit(main())
