"""Commands that are imported when they are run: `instep --help` imports none of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

__all__ = ["LazyCommand", "group", "imported"]


class LazyCommand(TyperCommand):
    """Stands for a command in the list of its group, and becomes it when it is run."""

    def __init__(self, name: str, summary: str, load: Callable[[], Callable[..., Any]]) -> None:
        """`load` imports the function of the command; `summary` is its line in the list."""
        super().__init__(name, help=summary, rich_markup_mode=None)
        self._load = load

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        """The context of the command itself, now imported."""
        from instep.cli.exit_codes import with_exit_code

        command = with_exit_code(self._load)()
        alone = typer.Typer(add_completion=False, rich_markup_mode=None)
        alone.command(self.name)(with_exit_code(command))
        return typer.main.get_command(alone).make_context(info_name, args, parent, **extra)


def group(name: str, summary: str, commands: Mapping[str, LazyCommand]) -> TyperGroup:
    """Commands under a common name."""
    return TyperGroup(
        name=name,
        help=summary,
        commands=dict(commands),
        no_args_is_help=True,
        rich_markup_mode=None,
    )


def imported(target: str) -> Callable[[], Callable[..., Any]]:
    """What imports `module:function` when it is called."""

    def load() -> Callable[..., Any]:
        module, _, function = target.partition(":")
        found: Callable[..., Any] = getattr(import_module(module), function)
        return found

    return load
