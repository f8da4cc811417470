"""Runs floor and product against one sender, each in a process of its own, alternating."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from bench.alignment.stores import Stores, stores
from bench.comparison import Measured, Memory, compared
from bench.report import Result
from bench.scenarios import Scenario

__all__ = ["measure", "measure_memory", "run_product", "sending"]


_ROOT = Path(__file__).parents[2]


_RUN_S = 600


_WARM_SHARE = 0.25


_FLAT_GROWTH = 1.1


def measure(scenario: Scenario, records: int, rounds: int) -> Measured:
    """Alternate floor and product; the order changes each round."""
    rates: dict[str, list[float]] = {"floor": [], "product": []}
    filled: dict[str, str] = {}
    with sending(scenario, records) as (url, place):
        keys = scenario.keys or records
        if scenario.prefill:
            for program in rates:
                prepare = ["--prepare"] if program == "product" else []
                filled[program] = place.named(f"{program}-filled")
                _run(program, url, filled[program], keys, scenario, *prepare)
        for number in range(rounds):
            for program in sorted(rates, reverse=bool(number % 2)):
                store = place.named(program)
                if scenario.prefill:
                    place.copy(filled[program], store)
                # What the run before has written must not reach the disk at this one's cost.
                os.sync()
                result = _run(program, url, store, records, scenario)
                rates[program].append(result.records_per_s)
                place.remove(store)
    return compared(scenario.name, scenario.text, records, rates, scenario.target)


def measure_memory(scenario: Scenario, records: int) -> Memory:
    """Run the product once for long, and measure its memory after each commit."""
    with sending(scenario, records) as (url, place):
        store = place.named("product")
        if scenario.prefill:
            _run("product", url, store, scenario.keys, scenario, "--prepare")
        result = _run("product", url, store, records, scenario)
    samples = [size for _, size in result.memory]
    first = next(size for done, size in result.memory if done >= records * _WARM_SHARE)
    return Memory(
        scenario=scenario.name,
        text=scenario.text,
        records=records,
        records_per_s=round(result.records_per_s),
        first_bytes=first,
        last_bytes=samples[-1],
        peak_bytes=max(samples),
        met=max(samples) <= first * _FLAT_GROWTH,
    )


def run_product(url: str, store: str, records: int, scenario: Scenario, *more: str) -> Result:
    """Run the product once, in a process of its own."""
    return _run("product", url, store, records, scenario, *more)


@contextmanager
def sending(scenario: Scenario, records: int) -> Iterator[tuple[str, Stores]]:
    """Start a sender. Yields its URL, once its frames are built, and the stores of the scenario."""
    command = [sys.executable, "-m", "bench.alignment.sender", "--records", str(records)]
    command += ["--keys", str(scenario.keys or records), "--per-frame", str(scenario.per_frame)]
    command += ["--shape", scenario.shape, *["--prefill"] * scenario.prefill]
    with (
        tempfile.TemporaryDirectory(prefix="instep-bench-") as folder,
        stores(scenario, Path(folder)) as place,
        subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}", place
        finally:
            process.kill()


def _run(
    program: str, url: str, store: str, records: int, scenario: Scenario, *more: str
) -> Result:
    command = [sys.executable, "-m", f"bench.alignment.{program}", "--url", url, "--store", store]
    command += ["--records", str(records), *["--journal"] * scenario.journal, *more]
    command += ["--kept", scenario.kept] if scenario.kept else []
    command += ["--shape", scenario.shape] if program == "floor" else []
    done = subprocess.run(
        command, cwd=_ROOT, stdout=subprocess.PIPE, text=True, check=True, timeout=_RUN_S
    )
    return msgspec.json.decode(done.stdout, type=Result)
