"""Each deliberate mistake is found by the test that is named for it."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.mutations import MUTATIONS, applied

_REPOSITORY = Path(__file__).resolve().parents[2]
_RUN = """
import sys
import pytest
from tests.end_to_end.mutations import applied

quiet = ["-q", "-x", "-n", "0", "-p", "no:cacheprovider", "-p", "no:randomly"]
with applied(sys.argv[1]):
    sys.exit(pytest.main([*quiet, *sys.argv[2:]]))
"""


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mistake_can_still_be_made(name: str) -> None:
    with applied(name):
        pass


@pytest.mark.long
@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mistake_is_found(name: str) -> None:
    path, option, words = shlex.split(MUTATIONS[name][1])
    run = [sys.executable, "-c", _RUN, name, path, option, f"{words} and not postgresql"]
    done = subprocess.run(run, cwd=_REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
    assert "AssertionError" in done.stdout, done.stdout
