"""What the random logs are held against is written from the specification alone."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SHARED = {"instep_spark.landing_schema"}
"""The columns of `changes`, which a log is written in."""
KITS = ("model_kit", "log_kit", "change_model_kit", "change_log_kit")


@pytest.mark.parametrize("name", KITS)
def test_the_oracle_shares_no_helper_with_the_pipeline(name: str) -> None:
    tree = ast.parse((Path(__file__).parent / f"{name}.py").read_text("utf-8"))
    named: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            named.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            named.add(node.module or "")
    ours = {one for one in named if one.split(".")[0].startswith("instep")}
    assert ours <= SHARED
    kits = {f"tests.instep_spark.lake.{kit}" for kit in KITS}
    assert {one for one in named if one.startswith("tests.")} <= kits
