"""Each row of the feature matrix that claims something names tests of this suite that try it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from tests.docs.clauses_kit import clauses, is_cited, sources

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


@pytest.mark.xdist_group("prose")
def test_each_clause_is_cited_where_it_is_decided() -> None:
    files = sources(_ROOT)
    named = set(clauses((_ROOT / "docs/feature-matrix.md").read_text(encoding="utf-8")))
    assert len(named) > 90
    assert [clause for clause in sorted(named) if not is_cited(clause, files)] == []


def test_the_clauses_of_a_row_are_those_that_it_names() -> None:
    matrix = """
## Clauses
| 3.12, 3.13 The context | yes | | |
| 3.18 Stream monitor | partly | | |
## WS-ReliableMessaging
| 3.4 IncompleteSequenceBehavior | yes | | |
| Cancellation proposal 2, 3 SequenceCancel | yes | | |
## HTTP of every listener
| RFC 9110 8.4 Content-Encoding | yes | | |
## WS-Reliability
| Request: groupId, `last` | yes | | |
| Rel16 step 3 PersistentDuration | yes | | |
## Stores and operation
| 9 lives | yes | | |
"""
    assert [*clauses(matrix)] == [
        *("TR-548 3.12", "TR-548 3.13", "WS-RM 3.4", "IncompleteSequenceBehavior"),
        *("proposal 2", "proposal 3", "SequenceCancel", "RFC 9110 8.4", "groupId", "last"),
        *("Rel16 step 3", "PersistentDuration"),
    ]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('"""It aligns (TR-548 3.10)."""', True),
        ("x = 1  # TR-548 3.10, for short", True),
        ('"""It aligns (TR-548 3.10.1)."""', False),
        ('"""It aligns (TR-548 13.10)."""', False),
        ('"""It takes Python 3.10."""', False),
        ('X = "TR-548 3.10"', False),
    ],
)
def test_a_citation_is_a_comment_or_a_docstring(text: str, found: bool) -> None:
    assert is_cited("TR-548 3.10", {"x.py": text}) is found
