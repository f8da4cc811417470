"""Runs one mutant: the explorer, then the tests that reach its line. The first failure kills it."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from types import CodeType
from typing import Any, Final

import pytest

from tests.explore.search import explore
from tests.explore.worlds import ALIGNMENT, BEGUN, SEQUENCES
from tests.mutants.generate import Mutant, tree_of

__all__ = ["REPOSITORY", "judge"]

REPOSITORY: Final = Path(__file__).resolve().parents[2]
_TIMEOUT_S: Final = 300
_OPTIONS: Final = (
    *("-q", "-x", "-n", "0", "-p", "no:cacheprovider", "-k", "not postgresql"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
)
_WORLDS: Final[dict[str, list[Any]]] = {
    "sdk/instep/alignment": [*ALIGNMENT.values(), BEGUN["truncated, a reader who is overtaken"]],
    "sdk/instep/sequencing": [*SEQUENCES.values()],
}


def judge(mutant: Mutant, tests: Sequence[str]) -> str:
    """What kills it: `explorer`, `test`; or `SURVIVED`, or why it could not be made."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(mutant, tests, theirs))
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


def _run(mutant: Mutant, tests: Sequence[str], answer: Any) -> None:
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    if not _make(mutant):
        answer.send("not made")
        return
    for world in _WORLDS.get(str(Path(mutant.path).parent), ()):
        try:
            found = explore(world, most_states=_MOST_STATES)
        except Exception:  # noqa: BLE001 - whatever it raises, it is seen
            found = None
        if found is None or found.violation:
            answer.send("explorer")
            return
    if not tests:
        answer.send("SURVIVED (no test reaches its line)")
        return
    code = pytest.main([*_OPTIONS, "--timeout", "120", *tests])
    answer.send("SURVIVED" if code == pytest.ExitCode.OK else "test")


_MOST_STATES: Final = 8_000
"""Of each world: as many as show most mistakes within a few seconds."""


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
