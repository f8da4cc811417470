"""Runs one mutant: what takes least time first. The comparisons of decisions, a few states of each
world, then the tests that reach its line. The first failure kills it.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import resource
import signal
from collections.abc import Callable, Sequence
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from types import CodeType
from typing import Any, Final

import pytest
from coverage import Coverage

from tests.explore.decisions.tables import DECISIONS
from tests.explore.search import explore
from tests.explore.worlds import ALIGNMENT, BEGUN, SEQUENCES
from tests.mutants.generate import Mutant, tree_of

__all__ = ["REPOSITORY", "Reached", "judge"]

REPOSITORY: Final = Path(__file__).resolve().parents[2]
_TIMEOUT_S: Final = 180
_PROCESSOR_S: Final = 60
"""A mistake that goes round for ever is ended by the system after so much processor time …"""
_MEMORY: Final = 8 << 30
"""… or so many bytes of memory, with all that was imported."""
_OPTIONS: Final = (
    *("-q", "-x", "-n", "0", "-p", "no:cacheprovider", "-k", "not postgresql"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
)
_WORLDS: Final[dict[str, list[Any]]] = {
    "sdk/instep/alignment": [*ALIGNMENT.values(), *BEGUN.values()],
    "sdk/instep/sequencing": [*SEQUENCES.values()],
}
_MOST_STATES: Final = 300
"""Of each world: most mistakes show at once, in one world or another."""

_EXPLORED: Final[list[Any]] = [*DECISIONS.values(), *chain.from_iterable(_WORLDS.values())]
"""What compares a decision, and the worlds."""


class Reached:
    """Which comparisons and worlds reach each line. Of a mistake elsewhere they show nothing."""

    def __init__(self, path: Path) -> None:
        """Read from `path`; recorded there where a file has changed since."""
        state = blake2b()
        folders = [*_WORLDS, "tests/explore"]
        for file in sorted(chain.from_iterable((REPOSITORY / f).rglob("*.py") for f in folders)):
            state.update(file.read_bytes())
        known = json.loads(path.read_bytes()) if path.exists() else {}
        if known.get("state") != state.hexdigest():
            known = {"state": state.hexdigest(), "lines": _lines_reached()}
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(known))
        self._lines: dict[str, list[int]] = known["lines"]

    def by(self, mutant: Mutant) -> Sequence[Any]:
        """What reaches its line."""
        return [_EXPLORED[at] for at in self._lines.get(f"{mutant.path}:{mutant.line}", ())]


def _lines_reached() -> dict[str, list[int]]:
    reached: dict[str, list[int]] = {}
    sources = [str(REPOSITORY / folder) for folder in _WORLDS]
    for at, world in enumerate(_EXPLORED):
        coverage = Coverage(data_file=None, source=sources)
        with coverage.collect():
            if callable(world):
                world()
            else:
                explore(world, most_states=_MOST_STATES)
        data = coverage.get_data()
        for file in data.measured_files():
            name = Path(file).relative_to(REPOSITORY)
            for line in data.lines(file) or ():
                reached.setdefault(f"{name}:{line}", []).append(at)
    return reached


def judge(
    mutant: Mutant,
    *,
    worlds: Sequence[Any],
    tests: Sequence[str] | None,
    states: int = _MOST_STATES,
) -> str:
    """What kills it: `explorer`, `test`; or `SURVIVED`, or why it could not be made.

    `worlds`: those that reach it, and the comparisons. `tests`: the same; None: none is run.
    """
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(mutant, worlds, tests, states, theirs))
    process.start()
    theirs.close()
    try:
        # A mistake may never come to an end: that is found, too.
        if not ours.poll(_TIMEOUT_S):
            os.kill(process.pid or 0, signal.SIGKILL)
            return "time"
        return str(ours.recv())
    except EOFError:
        return "process"
    finally:
        process.join()


def _run(
    mutant: Mutant, worlds: Sequence[Any], tests: Sequence[str] | None, states: int, answer: Any
) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (_PROCESSOR_S, _PROCESSOR_S))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    if not _make(mutant):
        answer.send("not made")
    elif any(_differs(one) for one in worlds if callable(one)) or _is_violated(worlds, states):
        answer.send("explorer")
    elif tests and pytest.main([*_OPTIONS, "--timeout", "120", *tests]) != pytest.ExitCode.OK:
        answer.send("test")
    else:
        answer.send("SURVIVED" if tests else "SURVIVED, and no test was run")


def _differs(compare: Callable[[], int]) -> bool:
    try:
        compare()
    except Exception:  # noqa: BLE001 - a decision may raise nothing
        return True
    return False


def _is_violated(worlds: Sequence[Any], most_states: int) -> bool:
    return any(
        explore(world, most_states=most_states).violation for world in worlds if not callable(world)
    )


def _make(mutant: Mutant) -> bool:
    """Give the function another code, in whatever module it was imported."""
    tree = tree_of(REPOSITORY, mutant)
    made = compile(tree, str(REPOSITORY / mutant.path), "exec", dont_inherit=True)
    module = importlib.import_module(".".join(Path(mutant.path).with_suffix("").parts[1:]))
    owner, _, name = mutant.function.rpartition(".")
    function: Any = vars(getattr(module, owner) if owner else module)[name]
    function = getattr(function, "fget", None) or getattr(function, "__func__", function)
    function = getattr(function, "__wrapped__", function)
    if not hasattr(function, "__code__"):
        return False
    function.__code__ = next(code for code in _codes(made) if code.co_qualname == mutant.function)
    return True


def _codes(code: CodeType) -> list[CodeType]:
    found = []
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            found += [inner, *_codes(inner)]
    return found
