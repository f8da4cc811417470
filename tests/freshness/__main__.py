"""How long a green word stands over wrong data, fault by fault.

    python -m tests.freshness [--fault NAME] [--record]

One line a fault. The exit code is 1 where a word stood longer than its limit. With `--record` the
results are written to `tests/freshness/results.json`, from which the table of the documentation is
made; faults that were not measured keep theirs.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
from pathlib import Path
from typing import Final

import msgspec

from tests.freshness.faults import FAULTS

__all__ = ["RESULTS", "read_results"]

RESULTS: Final = Path(__file__).with_name("results.json")


def read_results() -> dict[str, float]:
    """The recorded results: fault → for how long, in seconds."""
    return msgspec.json.decode(RESULTS.read_bytes(), type=dict[str, float])


async def _measured(name: str) -> float:
    with tempfile.TemporaryDirectory(prefix="instep-freshness-") as folder:
        return await FAULTS[name].measure(Path(folder))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--fault", choices=FAULTS, action="append", help="only this one")
    parser.add_argument("--record", action="store_true", help="write the results")
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    results = read_results() if RESULTS.exists() else {}
    good = True
    for name in given.fault or FAULTS:
        limit_s = FAULTS[name].limit_s
        try:
            stood_s = asyncio.run(_measured(name))
        except Exception as error:  # noqa: BLE001 - the others are measured all the same
            good = False
            print(f"{name:20} not measured: {type(error).__name__}: {error}", flush=True)
            continue
        results[name] = round(stood_s, 1)
        good &= stood_s <= limit_s
        told = "" if stood_s <= limit_s else ": longer than its limit"
        print(f"{name:20} {stood_s:6.1f} s of {limit_s:5.1f} s{told}", flush=True)
        if given.record:
            ordered = {one: results[one] for one in FAULTS if one in results}
            RESULTS.write_bytes(msgspec.json.format(msgspec.json.encode(ordered), indent=1) + b"\n")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
