"""The table of names in JSON lines: it knows every command. `check_names` compares their lines."""

from collections.abc import Iterator
from typing import Any

import pytest
import typer

from instep.cli.app import app
from instep.cli.command_group import LazyCommand, commands_of
from tests.json_names_kit import check_names, table

SCREENS = {("monitor",), ("plugin", "new")}
"""Commands for people: what they show, others print, or it stands in files."""


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    """The commands that print JSON lines."""
    inner = commands_of(command)
    for name, one in inner.items():
        yield from commands(one, (*path, name))
    if not inner or (isinstance(command, LazyCommand) and command.groups):
        if path in SCREENS:
            return
        loaded = command.loaded() if isinstance(command, LazyCommand) else command
        assert "--format" in [name for one in loaded.params for name in one.opts], path
        yield " ".join(path)


def test_every_command_prints_json_lines_with_names_of_the_table() -> None:
    assert set(commands(typer.main.get_command(app))) == {
        command for name in table().values() for command in name.commands
    }


def test_a_name_has_one_type() -> None:
    of_others = {"body", "default"}
    several = {name for name, one in table().items() if len(one.types - {"null"}) > 1}
    assert several == of_others


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"strem":"a"}', "'strem' is not in"),
        ('{"stream":1}', "'stream' is number"),
        ('{"chosen":true}', "'chosen' is of status, too"),
    ],
)
def test_another_name_is_noticed(line: str, reason: str) -> None:
    with pytest.raises(AssertionError, match=reason):
        check_names(["status"], line)
