"""Each row of the feature matrix that claims something names tests of this suite that try it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

_ROOT: Final = Path(__file__).resolve().parents[2]
_ROW: Final = re.compile(r"\| (?P<what>.+?) \| (?P<claim>yes|partly|no|–|) \|.*\|(?P<tried>.*)\|")


def _rows() -> list[tuple[str, str, str]]:
    lines = (_ROOT / "docs/feature-matrix.md").read_text().splitlines()
    found = [_ROW.fullmatch(line) for line in lines if line.startswith("| ")]
    return [(row["what"], row["claim"], row["tried"].strip()) for row in found if row is not None]


def _tests() -> set[str]:
    files = (_ROOT / "tests").rglob("test_*.py")
    return {name for file in files for name in re.findall(r"def (test_\w+)\(", file.read_text())}


def test_there_are_rows() -> None:
    assert len(_rows()) > 80


@pytest.mark.parametrize("claim", ["yes", "partly"])
def test_each_claim_is_tried_by_a_test_that_exists(claim: str) -> None:
    claims = {
        what: re.findall(r"`(\w+)`", tried) for what, stated, tried in _rows() if stated == claim
    }
    assert claims
    known = _tests()
    assert {
        what: tried for what, tried in claims.items() if not {*tried} <= known or not tried
    } == {}
