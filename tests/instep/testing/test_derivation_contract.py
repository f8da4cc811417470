"""The check of derivations finds each promise that is broken."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from instep.ports import Changes, Row, Statements
from instep.testing import DERIVATION_PROMISES, BrokenPromiseError, check_derivation

_SPEC: Any = importlib.util.spec_from_file_location(
    "example_derivation", Path(__file__).resolve().parents[3] / "examples" / "derivation.py"
)
EXAMPLE: Any = importlib.util.module_from_spec(_SPEC)
sys.modules[_SPEC.name] = EXAMPLE
_SPEC.loader.exec_module(EXAMPLE)
Doors: Any = EXAMPLE.Doors
LOG = EXAMPLE.LOG
OPENINGS = EXAMPLE.OPENINGS

pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize("promise", DERIVATION_PROMISES)
async def test_the_example_keeps_each_promise(promise: str) -> None:
    await check_derivation(Doors(), LOG, only=promise)


class Nameless(Doors):  # type: ignore[misc]
    name = "Doors!"


class Keyless(Doors):  # type: ignore[misc]
    tables = (replace(OPENINGS, key=("key", "door")),)


class WrongType(Doors):  # type: ignore[misc]
    def derive(self, statements: Statements, before: Mapping[str, Sequence[Row]]) -> Changes:
        found: Changes = super().derive(statements, before)
        rows = [(key, str(number), *rest) for key, number, *rest in found.inserted[OPENINGS.name]]
        return replace(found, inserted={OPENINGS.name: rows})


class Forgetful(Doors):  # type: ignore[misc]
    def derive(self, statements: Statements, before: Mapping[str, Sequence[Row]]) -> Changes:
        found: Changes = super().derive(statements, before)
        return replace(found, updated=())


class Remembering(Doors):  # type: ignore[misc]
    runs = 0

    def derive(self, statements: Statements, before: Mapping[str, Sequence[Row]]) -> Changes:
        self.runs += 1
        found: Changes = super().derive(statements, before)
        rows = [(*row[:2], self.runs, row[3]) for row in found.inserted[OPENINGS.name]]
        return replace(found, inserted={OPENINGS.name: rows})


class Sweepless(Doors):  # type: ignore[misc]
    def end_swept(self, table: str, rows: Sequence[Row], at_us: int) -> Changes:
        del table, rows, at_us
        return Changes()


@pytest.mark.parametrize(
    ("broken", "promise"),
    [
        (Nameless, "states-its-tables"),
        (Keyless, "states-its-tables"),
        (WrongType, "gives-rows-of-its-tables"),
        (Forgetful, "does-not-see-commits"),
        (Remembering, "is-pure"),
        (Sweepless, "ends-what-is-swept"),
    ],
)
async def test_a_broken_promise_is_named(broken: Any, promise: str) -> None:
    with pytest.raises(BrokenPromiseError) as caught:
        await check_derivation(broken(), LOG)
    assert caught.value.promise == promise
