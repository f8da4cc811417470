"""The short cut for values gives what typer gives, for each option of each command."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import typer
from typer import Context

from instep.cli.app import app
from instep.cli.command_group import LazyCommand, commands_of
from instep.cli.plain_values import PlainCommand, PlainGroup

VALUES = (
    None,
    "",
    "text",
    __file__,
    "table",
    "jsonl",
    "JSONL",
    "3",
    "-1",
    "latest",
    3,
    0.5,
    True,
    ["a"],
    (),
)


def commands(command: Any, name: str = "instep") -> Iterator[tuple[str, Any]]:
    loaded = command.loaded() if isinstance(command, LazyCommand) else command
    yield name, loaded
    for inner, one in commands_of(command).items():
        yield from commands(one, f"{name} {inner}")


ALL = dict(commands(typer.main.get_command(app)))


def outcome(process: Callable[[Any, Any], Any], context: Context, value: Any) -> tuple[Any, ...]:
    try:
        found = process(context, value)
    except (typer.BadParameter, TypeError, ValueError) as error:
        return type(error), str(error)
    return type(found), found


@pytest.mark.parametrize("name", ALL)
def test_a_value_is_what_typer_makes_of_it(name: str) -> None:
    command = ALL[name]
    assert isinstance(command, PlainCommand | PlainGroup)
    context = Context(command)
    parameters = command.get_params(context)
    own = {one.name: one.process_value for one in parameters}
    command.make_context(name, [], resilient_parsing=True)
    for one in command.get_params(context):
        assert one.process_value is not own[one.name]
        # A callback may print and exit: only what it does about no value is looked at.
        for value in VALUES if one.callback is None else (None,):
            of_typer = outcome(own[one.name], context, value)
            assert outcome(one.process_value, context, value) == of_typer, (one.name, value)


def test_each_kind_of_parameter_is_tried() -> None:
    kinds = {
        getattr(one.type_descriptor.annotation, "__name__", "several")
        for command in ALL.values()
        for one in command.params
    }
    assert {"str", "int", "float", "bool", "Path", "Format"} <= kinds
