"""Each row of the tables of exit codes, tried for real."""

import re
import shlex
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.instep.cli.cli_kit import (
    QUICK_CONFIG,
    align_and_lose_a_node,
    fill,
    instep,
    small_provider,
    started,
    statement,
)

PAGE = Path(__file__).parents[2] / "docs/reference/command-line.md"
ROW = re.compile(r"^\| `instep (.+)` \| ([012]) \|", re.MULTILINE)
ROWS = ROW.findall(PAGE.read_text(encoding="utf-8"))
LIVE = "127.0.0.1:8548"
"""Where the page has its provider."""
WITH_PROVIDER = {"audit", "discover", "follow", "init", "run"}
LONG = {"demo --topology sndlib/polska"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the store of the first table."""
    made = tmp_path_factory.mktemp("store")
    fill(made, statement(1, b'{"uuid":"u1"}'), journal="changes")
    return made


@pytest.fixture(scope="module")
def provider() -> Iterator[str]:
    """The provider of the second table. Gives its URL."""
    with small_provider() as url:
        yield url


@pytest.fixture(scope="module")
def configured(tmp_path_factory: pytest.TempPathFactory, provider: str) -> Path:
    """A folder with the configurations of the second table, and the store that lost an entity."""
    made = tmp_path_factory.mktemp("configured")
    for store in ("live", "lost"):
        (made / f"{store}.toml").write_text(QUICK_CONFIG.format(url=provider, store=store))
    whole = made / "whole.toml"
    whole.write_text(QUICK_CONFIG.format(url=provider, store=made / "lost"))
    align_and_lose_a_node(whole, made / "lost.db")
    return made


@pytest.fixture
def signals() -> Iterator[None]:
    """What commands do with signals ends with the test."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def rows(*, live: bool) -> list[Any]:
    """The rows of commands that speak with the provider, or of the others."""
    chosen = [row for row in ROWS if speaks(row[0]) is live]
    return [pytest.param(*row, marks=[pytest.mark.long] * (row[0] in LONG)) for row in chosen]


def speaks(command: str) -> bool:
    return command.split(maxsplit=1)[0] in WITH_PROVIDER and "none.toml" not in command


def test_every_code_has_a_row() -> None:
    assert {code for _, code in ROWS} == {"0", "1", "2"}
    for name in WITH_PROVIDER:
        codes = {code for command, code in ROWS if command.split()[0] == name and speaks(command)}
        assert codes >= {"0", "2"}, name


@pytest.mark.parametrize(("command", "code"), rows(live=False))
def test_a_command_ends_as_the_table_says(
    command: str, code: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    assert instep(*shlex.split(command)).exit_code == int(code)


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize(("command", "code"), rows(live=True))
def test_a_command_that_speaks_with_a_provider_ends_as_the_table_says(
    command: str,
    code: str,
    configured: Path,
    provider: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shutil.copytree(configured, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    there = command.replace(LIVE, provider.removeprefix("http://"))
    if there.startswith("follow"):
        # In a process of its own: its connection ends with that.
        with started(*shlex.split(there)) as process:
            _, errors = process.communicate(timeout=60)
        assert process.returncode == int(code), errors.decode()
        return
    done = instep(*shlex.split(there))
    assert done.exit_code == int(code), done.stderr
