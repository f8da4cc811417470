"""Long rounds over each parser that a stranger reaches: `python -m tests.fuzz.rounds [TARGET…]`.

Each target runs in a process of its own, so that its memory is its own. It fails where a case
raises what the target does not allow, or where the peak of the memory grows after the first tenth
of the cases: then something keeps what strangers send. The seed is printed; a case that fails is
written to a file, which `python -m tests.fuzz.rounds TARGET --replay FILE` runs again.
"""

from __future__ import annotations

import argparse
import random
import resource
import subprocess
import sys
import time
import traceback
from pathlib import Path

from tests.fuzz.mutation import mutated
from tests.fuzz.seeds import SEEDS, WORDS
from tests.fuzz.targets import TARGETS

_MOST_GROWTH_MIB = 16
_RSS_UNIT = 1 if sys.platform == "darwin" else 1024
_FOUND = Path("build/fuzz")


def main() -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    options.add_argument("--cases", type=int, default=1_000_000, help="for each target")
    options.add_argument("--seed", type=int, default=random.randrange(2**32))
    options.add_argument("--replay", type=Path, help="run this one case")
    given = options.parse_args()
    names = given.targets or list(TARGETS)
    if unknown := set(names) - set(TARGETS):
        options.error(f"there is no target {', '.join(unknown)}")
    if given.replay:
        TARGETS[names[0]](given.replay.read_bytes())
        return 0
    if len(names) == 1:
        return run(names[0], given.cases, given.seed)
    failed = 0
    for name in names:
        arguments = [name, "--cases", str(given.cases), "--seed", str(given.seed)]
        command = [sys.executable, "-m", "tests.fuzz.rounds", *arguments]
        failed += subprocess.run(command, check=False).returncode != 0
    return 1 if failed else 0


def run(name: str, cases: int, seed: int) -> int:
    rng, target, seeds = random.Random(seed), TARGETS[name], SEEDS[name]
    began_s, slowest_s, slowest = time.monotonic(), 0.0, b""
    first_mib = warm_mib = _peak_mib()
    for number in range(cases):
        data = mutated(rng, seeds, WORDS)
        case_s = time.monotonic()
        try:
            target(data)
        except Exception:  # noqa: BLE001 - any error is what is looked for
            traceback.print_exc()
            print(f"{name}: case {number:,} of seed {seed} failed: {_kept(name, data)}", flush=True)
            return 1
        case_s = time.monotonic() - case_s
        if case_s > slowest_s:
            slowest_s, slowest = case_s, data
        if number == cases // 10:
            warm_mib = _peak_mib()
    took_s, last_mib = time.monotonic() - began_s, _peak_mib()
    print(
        f"{name}: {cases:,} cases of seed {seed} in {took_s:.0f} s ({cases / took_s:,.0f}/s);"
        f" peak of the memory {first_mib:.1f} MiB at first, {warm_mib:.1f} after a tenth,"
        f" {last_mib:.1f} at the end;"
        f" slowest {slowest_s * 1e3:.0f} ms ({len(slowest):,} bytes)",
        flush=True,
    )
    if last_mib - warm_mib > _MOST_GROWTH_MIB:
        print(f"{name}: its memory grows by more than {_MOST_GROWTH_MIB} MiB", flush=True)
        return 1
    return 0


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_UNIT / 2**20


def _kept(name: str, data: bytes) -> Path:
    _FOUND.mkdir(parents=True, exist_ok=True)
    file = _FOUND / f"{name}-{len(list(_FOUND.iterdir()))}"
    file.write_bytes(data)
    return file


if __name__ == "__main__":
    sys.exit(main())
