"""Each row of the table of exit codes, tried for real."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from tests.instep.cli.cli_kit import fill, instep, statement

PAGE = Path(__file__).parents[2] / "docs/reference/command-line.md"
ROW = re.compile(r"^\| `instep (.+)` \| ([012]) \|", re.MULTILINE)
ROWS = ROW.findall(PAGE.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the store of the table."""
    made = tmp_path_factory.mktemp("store")
    fill(made, statement(1, b'{"uuid":"u1"}'), journal="changes")
    return made


def test_every_code_has_a_row() -> None:
    assert {code for _, code in ROWS} == {"0", "1", "2"}


@pytest.mark.parametrize(("command", "code"), ROWS)
def test_a_command_ends_as_the_table_says(
    command: str, code: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    assert instep(*shlex.split(command)).exit_code == int(code)
