"""The notebook runs from its first cell to its last, and draws its plots."""

from __future__ import annotations

import ast
import json
import warnings
from inspect import CO_COROUTINE
from pathlib import Path
from types import FunctionType
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest

NOTEBOOK = Path(__file__).resolve().parents[2] / "examples" / "network.ipynb"


def cells() -> list[str]:
    read: dict[str, Any] = json.loads(NOTEBOOK.read_text())
    assert read["nbformat"] == 4
    # What a run has left is no part of the source.
    assert not any(cell.get("outputs") for cell in read["cells"])
    return ["".join(cell["source"]) for cell in read["cells"] if cell["cell_type"] == "code"]


@pytest.mark.asyncio
async def test_the_notebook_runs_and_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    mpl.use("agg")
    shown: list[int] = []
    monkeypatch.setattr(plt, "show", lambda: shown.append(len(plt.gcf().axes[0].patches)))
    names: dict[str, Any] = {"__name__": "__main__"}
    last: object = None
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        for number, source in enumerate(cells(), 1):
            tree = ast.parse(source)
            end = tree.body[-1]
            if isinstance(end, ast.Expr):
                target = ast.Name("shown_value", ast.Store())
                tree.body[-1] = ast.fix_missing_locations(ast.Assign([target], end.value, lineno=1))
            flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
            program = compile(tree, f"cell {number}", "exec", flags=flags)
            ran = FunctionType(program, names)()
            if program.co_flags & CO_COROUTINE:
                await ran
            last = names.get("shown_value") if number < len(cells()) else last
    plt.close("all")
    assert len(shown) == 2
    assert min(shown) > 0  # bars
    assert last == 12
