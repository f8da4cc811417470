"""The wire laboratory: every source, listener and sink behind the relay, rule by rule.

    python -m tests.wire --seed 1 [--rule NAME] [--kind NAME] [--record]

One line a cell. The exit code is 1 where a cell is neither ok nor a refusal that is wanted. With
`--record` the results are written to `tests/wire/results.json`, from which the table of the
documentation is made; cells that were not run keep theirs.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import re
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import msgspec

from tests.wire.matrix import CELLS, KINDS, REFUSED_BY_DESIGN
from tests.wire.outcome import Outcome

__all__ = ["RESULTS", "play", "read_results"]

RESULTS: Final = Path(__file__).with_name("results.json")
LONGEST_S: Final = 1200.0


def read_results() -> dict[str, dict[str, Outcome]]:
    """The recorded results: rule → kind → outcome."""
    return msgspec.json.decode(RESULTS.read_bytes(), type=dict[str, dict[str, Outcome]])


async def play(rule: str, kind: str, seed: int) -> Outcome:
    """Play one cell; of its rounds the first that is not ok counts."""
    outcome = Outcome("not played")
    for place in range(CELLS[rule, kind].rounds):
        with tempfile.TemporaryDirectory(prefix="instep-wire-") as name:
            try:
                async with asyncio.timeout(LONGEST_S):
                    outcome = await KINDS[kind](CELLS[rule, kind], seed + place, Path(name))
            except Exception as error:  # noqa: BLE001 - the end of a consumer is a result
                told = f"{type(error).__name__}: {' '.join(str(error).split())}"
                outcome = Outcome("differs", told)
        if outcome.result != "ok":
            break
    if outcome.result == "refused" and rule not in REFUSED_BY_DESIGN:
        return Outcome("differs", outcome.reason)
    return outcome


def _good(outcome: Outcome) -> bool:
    return outcome.result in ("ok", "refused")


def _told(outcome: Outcome) -> Outcome:
    """The outcome without what is another each time."""
    reason = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:PORT", outcome.reason)
    reason = re.sub(r"[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}", "UUID", reason)
    return Outcome(outcome.result, reason[:200])


def _record(rule: str, kind: str, outcome: Outcome) -> None:
    """Write a result; those of cells that are no more go."""
    results = read_results() if RESULTS.exists() else {}
    results.setdefault(rule, {})[kind] = outcome
    ordered: dict[str, dict[str, Outcome]] = {}
    for name, of in CELLS:
        if of in results.get(name, {}):
            ordered.setdefault(name, {})[of] = results[name][of]
    RESULTS.write_bytes(msgspec.json.format(msgspec.json.encode(ordered), indent=1) + b"\n")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rule", action="append", help="this rule; may be repeated")
    parser.add_argument("--kind", action="append", choices=KINDS, help="this kind; …")
    parser.add_argument("--record", action="store_true")
    given = parser.parse_args()
    logging.disable(logging.ERROR)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # servers are stopped, too
    os.environ.pop("PYTHONASYNCIODEBUG", None)
    bad = 0
    for rule, kind in CELLS:
        if (given.rule and rule not in given.rule) or (given.kind and kind not in given.kind):
            continue
        began_s = time.monotonic()
        outcome = _told(asyncio.run(play(rule, kind, given.seed)))
        bad += not _good(outcome)
        took_s = time.monotonic() - began_s
        mark = " " if _good(outcome) else "!"
        told = f"{took_s:6.1f} s {mark} {outcome.result:10} {outcome.reason}"
        print(f"{kind:20} {rule:22} {told}", flush=True)
        if given.record:
            _record(rule, kind, outcome)
    print(f"seed {given.seed}: {bad} not as wanted")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
