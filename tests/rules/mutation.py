"""One deliberate mistake in the function that decides a rule, and the run of a test under it."""

from __future__ import annotations

import importlib
import inspect
import io
import multiprocessing
import os
from collections.abc import Iterable, Iterator
from contextlib import redirect_stdout
from operator import attrgetter
from pathlib import Path
from types import CodeType
from typing import Any, Final, NamedTuple

import pytest

from tests.docs.architecture_kit import REPOSITORY, definition

_TIMEOUT_S: Final = 300
_OPTIONS: Final = (
    *("-q", "-x", "-n", "0", "-p", "no:cacheprovider"),
    *("-k", "not postgresql"),  # it may not be there
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),  # `load` has imported the plug-ins
)
_NO_DECISIONS: Final = (NameError, AttributeError, TypeError, ImportError, SyntaxError)
"""What a text raises that is no program. Whoever mutates meant to decide something else."""


class Mutation(NamedTuple):
    """Another decision in the place of one, as text, and the test that finds it."""

    rule: str
    place: str
    """`file::name` of the function, as the table of rules has it."""
    old: str
    """Stands once in it."""
    new: str
    test: str
    """`file::name`, as the table of rules has it; it cites the rule."""

    def __str__(self) -> str:
        return f"{self.rule} {self.place}: {self.old!r} -> {self.new!r}"


def mutated(source: str, mutation: Mutation) -> str:
    """The source of the module with the mistake in it."""
    first, behind = definition(source, mutation.place.partition("::")[2])
    lines = source.splitlines()
    text = "\n".join(lines[first:behind])
    assert text.count(mutation.old) == 1, f"{mutation}: mend the mutation"
    return "\n".join([*lines[:first], text.replace(mutation.old, mutation.new), *lines[behind:]])


def load(tests: Iterable[str]) -> None:
    """Import all that these tests need, once for the processes of `result`. Runs nothing, so that
    no thread is there when they fork.
    """
    with redirect_stdout(io.StringIO()) as said:
        code = pytest.main([*_OPTIONS, "--collect-only", *dict.fromkeys(tests)])
    assert code == pytest.ExitCode.OK, said.getvalue()


def result(mutation: Mutation) -> str:
    """Run its test in a process of its own; how it ended: `passed`, `failed`, or what is wrong."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(mutation, theirs))
    process.start()
    theirs.close()
    try:
        return str(ours.recv())
    except EOFError:
        return "the process has died"
    finally:
        process.join()


def _run(mutation: Mutation, answer: Any) -> None:
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    _make(mutation)
    seen = _Failures()
    code = pytest.main([*_OPTIONS, "--timeout", str(_TIMEOUT_S), mutation.test], plugins=[seen])
    known = {pytest.ExitCode.OK: "passed", pytest.ExitCode.TESTS_FAILED: "failed"}
    answer.send(seen.mistaken or known.get(pytest.ExitCode(code), f"{code!r}"))


class _Failures:
    """Notes a failure that is none of the test: a slow machine may be the reason, or a mistake that
    is no program.
    """

    def __init__(self) -> None:
        self.mistaken = ""

    def pytest_exception_interact(
        self, call: pytest.CallInfo[Any], report: pytest.CollectReport | pytest.TestReport
    ) -> None:
        error = call.excinfo
        if error is not None and (
            report.when != "call"
            or error.errisinstance(_NO_DECISIONS)
            or "from pytest-timeout" in error.exconly()
        ):
            self.mistaken = f"{report.when}: {error.exconly()}"


def _make(mutation: Mutation) -> None:
    """Give the function another code, in whatever module it was imported."""
    path, _, name = mutation.place.partition("::")
    source = (REPOSITORY / path).read_text(encoding="utf-8")
    made = compile(mutated(source, mutation), str(REPOSITORY / path), "exec", dont_inherit=True)
    function = inspect.unwrap(attrgetter(name)(importlib.import_module(module_of(path))))
    function = getattr(function, "__func__", function)
    function.__code__ = next(code for code in _codes(made) if code.co_qualname == name)


def module_of(path: str) -> str:
    """The dotted name of the module at a path."""
    return ".".join(Path(path).with_suffix("").parts[1:])


def _codes(code: CodeType) -> Iterator[CodeType]:
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield inner
            yield from _codes(inner)
