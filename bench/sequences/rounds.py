"""Runs floor and product of numbered sequences alternating, each in a process of its own."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec

from bench.comparison import Measured, compared
from bench.report import Result, Spent
from bench.scenarios import SEQUENCE_RATIO_TARGET, SequenceScenario
from bench.sequences import inbox_floor, inbox_product

__all__ = ["measure_sequence", "run_product"]

_ROOT = Path(__file__).parents[2]
_RUN_S = 600
_SIDES: Final = ("floor", "product")
_TABLES: Final = {"floor": inbox_floor.TABLE, "product": inbox_product.TABLE}


def measure_sequence(scenario: SequenceScenario, messages: int, rounds: int) -> Measured:
    """Alternate floor and product; the order changes each round."""
    rates: dict[str, list[float]] = {side: [] for side in _SIDES}
    for number in range(rounds):
        for side in sorted(_SIDES, reverse=bool(number % 2)):
            run = _over_http if scenario.senders else _in_memory
            rates[side].append(run(side, scenario, messages).records_per_s)
    return compared(scenario.name, scenario.text, messages, rates, SEQUENCE_RATIO_TARGET)


def run_product(scenario: SequenceScenario, messages: int, *more: str) -> Result:
    """One run of the product over HTTP."""
    return _over_http("product", scenario, messages, *more)


def _in_memory(side: str, scenario: SequenceScenario, messages: int) -> Result:
    return _run_program("in_memory", side, "--load", scenario.load, "--messages", str(messages))


def _over_http(side: str, scenario: SequenceScenario, messages: int, *more: str) -> Result:
    each = -(-messages // scenario.senders)
    with tempfile.TemporaryDirectory(prefix="instep-bench-") as folder:
        store = Path(folder) / "store.db"
        protocol = ["--protocol", scenario.protocol]
        program = ["-m", f"bench.sequences.inbox_{side}", "--store", str(store), *protocol, *more]
        command = [sys.executable, *program]
        with subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                port = int(process.stdout.readline())
                arguments = ("--port", port, "--senders", scenario.senders, "--messages", each)
                result = _run_program("inbox_sender", *map(str, arguments), *protocol)
                process.send_signal(signal.SIGTERM)
                told = process.stdout.read()
                if process.wait(60):
                    raise SystemExit(f"the {side} ended with {process.returncode}")
            finally:
                process.kill()
        with closing(sqlite3.connect(store)) as raw:
            (kept,) = raw.execute(f"SELECT count(*) FROM {_TABLES[side]}").fetchone()
    if kept != result.records:
        raise SystemExit(f"{result.records:,} messages were taken and {kept:,} are stored")
    if not told:
        return result
    spent = msgspec.json.decode(told, type=Spent)
    return msgspec.structs.replace(result, **msgspec.to_builtins(spent))


def _run_program(program: str, *arguments: str) -> Result:
    command = [sys.executable, "-m", f"bench.sequences.{program}", *arguments]
    done = subprocess.run(
        command, cwd=_ROOT, stdout=subprocess.PIPE, text=True, check=True, timeout=_RUN_S
    )
    return msgspec.json.decode(done.stdout, type=Result)
