"""The functions of the table decide the rules: another decision fails a test that cites the rule.
`make mutations` tries all of them.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.docs.architecture_kit import REPOSITORY, cites, table
from tests.rules.mutation import Mutation, mutated
from tests.rules.mutations import MUTATIONS

ROWS = {
    row.tag: row
    for row in table((REPOSITORY / "docs/topics/architecture.md").read_text(encoding="utf-8"))
}
FEW = ("A4", "A15", "S5")
"""Tried each time; they need neither a database nor Spark."""


def tried(*rules: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.rules", *rules]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("tag", ROWS)
def test_each_function_of_a_row_has_a_mutation(tag: str) -> None:
    functions = {mutation.place for mutation in MUTATIONS if mutation.rule == tag}
    assert functions == set(ROWS[tag].functions)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
def test_a_mistake_can_still_be_made(mutation: Mutation) -> None:
    path = REPOSITORY / mutation.place.partition("::")[0]
    source = path.read_text(encoding="utf-8")
    compile(mutated(source, mutation), path, "exec")
    assert mutation.test in ROWS[mutation.rule].tests
    assert cites(mutation.test, mutation.rule)


def test_a_few_mistakes_are_found() -> None:
    done = tried(*FEW)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_all_mistakes_are_found() -> None:
    done = tried()
    assert done.returncode == 0, done.stdout + done.stderr
