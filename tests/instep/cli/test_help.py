"""What `--help` of a command shows: an example that can be typed, options in groups."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer import Context

from instep.cli.app import app
from instep.cli.command_group import LazyCommand, commands_of
from tests.instep.cli.cli_kit import instep


def commands(command: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The paths of the commands that do something, below this one."""
    loaded = command.loaded() if isinstance(command, LazyCommand) else command
    if not hasattr(loaded, "list_commands"):
        yield path
    for name, inner in commands_of(command).items():
        yield from commands(inner, (*path, name))


ROOT = typer.main.get_command(app)
PATHS = list(commands(ROOT, ()))


def found(path: tuple[str, ...]) -> Any:
    command: Any = ROOT
    for name in path:
        inner = commands_of(command)
        command = inner[name]
    return command.loaded() if isinstance(command, LazyCommand) else command


@pytest.mark.parametrize("path", PATHS, ids=" ".join)
def test_each_command_has_an_example_that_it_understands(
    path: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trace.jsonl").touch()
    monkeypatch.setenv("COLUMNS", "80")
    shown = instep(*path, "--help").stdout
    assert max(map(len, shown.splitlines())) <= 80
    assert "x>=" not in shown
    [example] = re.findall(r"^  Example: (instep .*)$", shown, re.MULTILINE)
    words = shlex.split(example)[1:]
    assert tuple(words[: len(path)]) == path
    # Raises UsageError for an option or an argument that it does not have; runs nothing.
    found(path).make_context("instep", words[len(path) :], Context(ROOT))


def test_many_options_are_in_groups() -> None:
    shown = instep("provider", "--help").stdout
    headings = re.findall(r"^(\w[\w ]*):$", shown, re.MULTILINE)
    assert headings == [
        "Options",
        "Network",
        "Log",
        "Frames",
        "Changes",
        "Login and TLS",
        "Faults",
    ]
    assert re.findall(r"^(\w+):$", instep("follow", "--help").stdout, re.MULTILINE) == [
        "Arguments",
        "Options",
        "Connection",
    ]
