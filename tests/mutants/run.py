"""Runs one mutant: the explorer, then the tests that reach its line. The first failure kills it."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
from collections.abc import Mapping, Sequence
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

__all__ = ["REPOSITORY", "judge", "reached_by_explorer"]

REPOSITORY: Final = Path(__file__).resolve().parents[2]
_TIMEOUT_S: Final = 180
_OPTIONS: Final = (
    *("-q", "-x", "-n", "0", "-p", "no:cacheprovider", "-k", "not postgresql"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
)
_WORLDS: Final[dict[str, list[Any]]] = {
    "sdk/instep/alignment": [*ALIGNMENT.values(), *BEGUN.values()],
    "sdk/instep/sequencing": [*SEQUENCES.values()],
}
_MOST_STATES: Final = (300, 2_000)
"""Of each world, in two rounds, the first of which shows what a world reaches: most mistakes show
at once, in one world or another.
"""

Reached = Mapping[tuple[str, int], Sequence[Any]]
"""A world, or a function that compares a decision."""


def reached_by_explorer() -> Reached:
    """The worlds that reach each line, as file and number. A mistake elsewhere needs none."""
    reached: dict[tuple[str, int], list[Any]] = {}
    sources = [str(REPOSITORY / folder) for folder in _WORLDS]
    # What takes least time is asked first.
    for world in (*DECISIONS.values(), *chain.from_iterable(_WORLDS.values())):
        coverage = Coverage(data_file=None, source=sources)
        with coverage.collect():
            if callable(world):
                world()
            else:
                explore(world, most_states=_MOST_STATES[0])
        data = coverage.get_data()
        for file in data.measured_files():
            for line in data.lines(file) or ():
                reached.setdefault((file, line), []).append(world)
    return reached


def judge(mutant: Mutant, *, worlds: Sequence[Any], tests: Sequence[str] | None) -> str:
    """What kills it: `explorer`, `test`; or `SURVIVED`, or why it could not be made.

    `worlds`: those that reach it. `tests`: those that reach it; None: none is run.
    """
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(mutant, worlds, tests, theirs))
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


def _run(mutant: Mutant, worlds: Sequence[Any], tests: Sequence[str] | None, answer: Any) -> None:
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    if not _make(mutant):
        answer.send("not made")
    elif _explorer_finds(worlds):
        answer.send("explorer")
    elif tests is None:
        answer.send("SURVIVED the explorer")
    elif not tests:
        answer.send("SURVIVED (no test reaches its line)")
    else:
        code = pytest.main([*_OPTIONS, "--timeout", "120", *tests])
        answer.send("SURVIVED" if code == pytest.ExitCode.OK else "test")


def _explorer_finds(worlds: Sequence[Any]) -> bool:
    for compare in filter(callable, worlds):
        try:
            compare()
        except Exception:  # noqa: BLE001 - a decision may raise nothing
            return True
    for most_states in _MOST_STATES:
        for world in worlds:
            if not callable(world) and explore(world, most_states=most_states).violation:
                return True
    return False


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
