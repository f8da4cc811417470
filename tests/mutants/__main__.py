"""Makes mistakes by a program, and looks for those that nothing finds: `make mutants COUNT=800
SEED=1`, or `COUNT=0` for all. The first run in a folder records which test reaches which line.

Some files are always tried whole; what is drawn comes from the others. What `equivalent.txt` lists
changes nothing that can be seen.
"""

from __future__ import annotations

import argparse
import gc
import io
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Final

import pytest
from coverage import CoverageData

from tests.mutants.generate import FOLDERS, Mutant, mutants
from tests.mutants.run import REPOSITORY, Reached, judge

_RECORDS: Final = REPOSITORY / "build" / "mutants"
_EQUIVALENT: Final = Path(__file__).with_name("equivalent.txt")
_TESTS: Final = {
    "sdk/instep/alignment": "tests/instep/alignment",
    "sdk/instep/sequencing": "tests/instep/sequencing",
    "sdk/instep/runtime/messages": "tests/instep/runtime",
}
_FURTHER_TESTS: Final = {
    "sdk/instep/alignment/change_only.py": "tests/instep_sql/entities/test_change_only.py",
}
"""A file that is mostly tested through a store."""
_WHOLE: Final = ("continuity.py", "sweep_trigger.py", "gaps.py", "window.py")
"""Files that are always tried whole: they decide what is swept, and what is delivered."""
_MOST_TESTS: Final = 400
_TELL_EVERY: Final = 10


def record(folder: str, path: Path) -> None:
    """Run the tests of a folder, and record which of them reaches which line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-m", "not long and not spark"]
    command += ["-k", "not postgresql", "--cov=sdk", "--cov-context=test", "--cov-report="]
    environment = {**os.environ, "COVERAGE_FILE": str(path)}
    subprocess.run([*command, folder], cwd=REPOSITORY, env=environment, check=True)


@cache
def recorded(folder: str) -> CoverageData:
    """Which test of a folder reaches which line."""
    path = _RECORDS / folder.replace("/", ".")
    sources = chain.from_iterable((REPOSITORY / one).glob("*.py") for one in FOLDERS)
    changed_s = max(one.stat().st_mtime for one in sources)
    # Lines move with each change.
    if not path.exists() or path.stat().st_mtime < changed_s:
        record(folder, path)
    data = CoverageData(str(path))
    data.read()
    return data


def _tests_of_file(path: str) -> list[str]:
    further = _FURTHER_TESTS.get(path)
    return [_TESTS[str(Path(path).parent)], *([further] if further else ())]


def tests_of(mutant: Mutant) -> Sequence[str]:
    """The tests that reach its line: first those of the module, then the others."""
    found: set[str] = set()
    for folder in _tests_of_file(mutant.path):
        contexts = recorded(folder).contexts_by_lineno(str(REPOSITORY / mutant.path))
        found |= {one.partition("|")[0] for one in contexts.get(mutant.line, ()) if one}
    own = f"test_{Path(mutant.path).stem}"
    return sorted(found, key=lambda one: (own not in one, one))[:_MOST_TESTS]


def equivalents() -> frozenset[str]:
    """The mistakes that change nothing, as `file function: text`; a reason follows each."""
    lines = _EQUIVALENT.read_text(encoding="utf-8").splitlines()
    return frozenset(line.partition("  # ")[0] for line in lines if line and line[0] != "#")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=800)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--path", default="", help="only of files whose path has this")
    alone = parser.add_mutually_exclusive_group()
    alone.add_argument("--explorer", action="store_true", help="the explorer alone, and no test")
    alone.add_argument("--tests", action="store_true", help="the tests alone, which is faster")
    parser.add_argument(
        "--states", type=int, default=300, help="of each world that the explorer visits"
    )
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    every = [one for one in mutants(REPOSITORY) if options.path in one.path]
    drawn = _drawn(every, options.count, options.seed)
    print(f"{len(drawn)} of {len(every)} mistakes, seed {options.seed}", flush=True)
    reached = None if options.tests else Reached(_RECORDS / "reached.json")
    if not options.explorer:
        for folder in sorted({name for one in drawn for name in _tests_of_file(one.path)}):
            recorded(folder)
        os.environ["HYPOTHESIS_PROFILE"] = "mutants"
        with redirect_stdout(io.StringIO()):
            # Imported once, for the processes that fork.
            collects = ("-q", "-n", "0", "-p", "no:cacheprovider", "--collect-only")
            pytest.main([*collects, *_TESTS.values(), *_FURTHER_TESTS.values()])
        gc.freeze()
    known = equivalents()
    ends: Counter[str] = Counter()
    began_s = time.monotonic()

    def one(mutant: Mutant) -> tuple[Mutant, str]:
        worlds = reached.by(mutant) if reached else ()
        # Here, and not in the process that is forked for it: there coverage erases its file.
        tests = None if options.explorer else tests_of(mutant)
        return mutant, judge(mutant, worlds=worlds, tests=tests, states=options.states)

    with ThreadPoolExecutor(options.processes) as pool:
        for done, (mutant, found) in enumerate(pool.map(one, drawn), 1):
            end = "equivalent" if found.startswith("SURVIVED") and mutant.name in known else found
            ends[end.partition(" ")[0]] += 1
            if end.startswith("SURVIVED"):
                print(f"{end}: {mutant}", flush=True)
            if done % _TELL_EVERY == 0:
                print(f"{done} tried: {dict(ends)}", flush=True)
    print(f"{dict(ends)} in {time.monotonic() - began_s:,.0f} s")
    return int(ends["SURVIVED"] > 0)


def _drawn(every: list[Mutant], count: int, seed: int) -> list[Mutant]:
    """What is always tried, and as many others as `count` leaves; in an order that is drawn, too,
    so that a run that was ended early has seen a fair share.
    """
    if not count:
        return every
    rng = random.Random(seed)
    whole = [one for one in every if Path(one.path).name in _WHOLE]
    others = [one for one in every if Path(one.path).name not in _WHOLE]
    left = max(0, count - len(whole))
    drawn = [*whole, *rng.sample(others, min(left, len(others)))]
    rng.shuffle(drawn)
    return drawn


if __name__ == "__main__":
    raise SystemExit(main())
