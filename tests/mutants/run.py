"""Runs one mutant: the explorer, then the tests that reach its line. The first failure kills it."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import pytest

from tests.explore.search import explore
from tests.explore.worlds import ALIGNMENT, BEGUN, SEQUENCES
from tests.mutants.generate import Mutant, tree_of

__all__ = ["REPOSITORY", "judge", "reached_by_explorer"]

REPOSITORY: Final = Path(__file__).resolve().parents[2]
_TIMEOUT_S: Final = 600
_OPTIONS: Final = (
    *("-q", "-x", "-n", "0", "-p", "no:cacheprovider", "-k", "not postgresql"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
)
_WORLDS: Final[dict[str, list[Any]]] = {
    "sdk/instep/alignment": [*ALIGNMENT.values(), *BEGUN.values()],
    "sdk/instep/sequencing": [*SEQUENCES.values()],
}
_MOST_STATES: Final = (300, 2_500)
"""Of each world, in two rounds: most mistakes show at once, in one world or another."""
_TRACED_STATES: Final = 100


def reached_by_explorer() -> frozenset[tuple[str, str]]:
    """The functions that the worlds reach, as file and qualified name. The others need no world."""
    reached: set[tuple[str, str]] = set()

    def note(frame: FrameType, event: str, _arg: object) -> None:
        if event == "call":
            reached.add((frame.f_code.co_filename, frame.f_code.co_qualname))

    sys.setprofile(note)
    try:
        for worlds in _WORLDS.values():
            for world in worlds:
                explore(world, most_states=_TRACED_STATES)
    finally:
        sys.setprofile(None)
    return frozenset(reached)


def judge(mutant: Mutant, *, explored: bool, tests: Callable[[], Sequence[str]] | None) -> str:
    """What kills it: `explorer`, `test`; or `SURVIVED`, or why it could not be made.

    `explored`: whether the worlds reach it. `tests`: those that reach it; None: none is run.
    """
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(mutant, explored, tests, theirs))
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
    mutant: Mutant, explored: bool, tests: Callable[[], Sequence[str]] | None, answer: Any
) -> None:
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    if not _make(mutant):
        answer.send("not made")
    elif explored and _explorer_finds(_WORLDS.get(str(Path(mutant.path).parent), [])):
        answer.send("explorer")
    elif tests is None:
        answer.send("SURVIVED the explorer")
    elif not (reaching := tests()):
        answer.send("SURVIVED (no test reaches its line)")
    else:
        code = pytest.main([*_OPTIONS, "--timeout", "120", *reaching])
        answer.send("SURVIVED" if code == pytest.ExitCode.OK else "test")


def _explorer_finds(worlds: Sequence[Any]) -> bool:
    for most_states in _MOST_STATES:
        for world in worlds:
            if explore(world, most_states=most_states).violation:
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
