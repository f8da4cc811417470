"""Makes mistakes by a program, and looks for those that nothing finds: `make mutants COUNT=600
SEED=1`, or `COUNT=0` for all. The first run records which test reaches which line.
"""

from __future__ import annotations

import argparse
import io
import os
import random
import subprocess
import sys
import time
from collections import Counter
from contextlib import redirect_stdout
from typing import Final

import pytest
from coverage import CoverageData

from tests.mutants.generate import mutants
from tests.mutants.run import REPOSITORY, judge

_RECORD: Final = REPOSITORY / "build" / "mutants.coverage"
_TESTS: Final = ("tests/instep/alignment", "tests/instep/sequencing", "tests/instep/runtime")
_MOST_TESTS: Final = 400


def record() -> None:
    """Run the tests, and record which of them reaches which line."""
    _RECORD.parent.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-m", "not long and not spark"]
    command += ["-k", "not postgresql", "--cov=sdk", "--cov-context=test", "--cov-report="]
    environment = {**os.environ, "COVERAGE_FILE": str(_RECORD)}
    subprocess.run([*command, *_TESTS], cwd=REPOSITORY, env=environment, check=True)


def tests_of(data: CoverageData, path: str, line: int) -> list[str]:
    """The tests that reach a line, in order."""
    contexts = data.contexts_by_lineno(str(REPOSITORY / path)).get(line, [])
    return sorted({one.partition("|")[0] for one in contexts if one})[:_MOST_TESTS]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--path", default="", help="only of files whose path has this")
    options = parser.parse_args()
    if not _RECORD.exists():
        record()
    data = CoverageData(str(_RECORD))
    data.read()
    every = [one for one in mutants(REPOSITORY) if options.path in one.path]
    drawn = every
    if options.count:
        drawn = random.Random(options.seed).sample(every, min(options.count, len(every)))
    print(f"{len(drawn)} of {len(every)} mistakes, seed {options.seed}", flush=True)
    with redirect_stdout(io.StringIO()):
        # Imported once, for the processes that fork.
        pytest.main(["-q", "-n", "0", "-p", "no:cacheprovider", "--collect-only", *_TESTS])
    ends: Counter[str] = Counter()
    began_s = time.monotonic()
    for mutant in drawn:
        end = judge(mutant, tests_of(data, mutant.path, mutant.line))
        ends[end.partition(" ")[0]] += 1
        if end.startswith("SURVIVED"):
            print(f"{end}: {mutant}", flush=True)
    print(f"{dict(ends)} in {time.monotonic() - began_s:,.0f} s")
    return int(ends["SURVIVED"] > 0)


if __name__ == "__main__":
    raise SystemExit(main())
