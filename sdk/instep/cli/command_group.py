"""Commands that are imported when they are run: `instep --help` imports none of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any

import typer
from typer import Context
from typer.core import TyperArgument, TyperCommand, TyperGroup

from instep.config.entry_points import Command

__all__ = ["LazyCommand", "commands_of", "group", "imported"]


class _GroupedCommand(TyperCommand):
    """Shows the options that have a `rich_help_panel` under it, after the others."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments and options, as Typer does without groups."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                name, text = record
                record = name, text.replace("x>=", "at least ")
                is_argument = parameter.param_type_name == "argument"
                panel = getattr(parameter, "rich_help_panel", None) or "Options"
                sections.setdefault("Arguments" if is_argument else panel, []).append(record)
        for heading, records in sections.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)


class LazyCommand(TyperCommand):
    """Stands for a command in the list of its group, and becomes it when it is run."""

    def __init__(
        self,
        name: str,
        summary: str,
        load: Callable[[], Command],
        groups: Mapping[str, TyperGroup] | None = None,
    ) -> None:
        """`load` imports the command or the group; `summary` is its line in the list. `groups`: the
        first argument that names one of them leads to it.
        """
        super().__init__(name, help=summary, rich_markup_mode=None)
        self._summary = summary
        self._load = load
        self.groups = dict(groups or {})

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        """The context of the command itself, now imported."""
        if args and args[0] in self.groups:
            name = f"{info_name} {args[0]}"
            return self.groups[args[0]].make_context(name, args[1:], parent, **extra)
        return self.loaded().make_context(info_name, args, parent, **extra)

    def loaded(self) -> Any:
        """The command or the group itself, now imported."""
        from instep.cli.exit_codes import with_exit_code

        command = with_exit_code(self._load)()
        if isinstance(command, Mapping):
            verbs = {
                name: LazyCommand(name, _summary(verb), partial(_same, verb))
                for name, verb in command.items()
            }
            return group(self.name or "", self._summary, verbs)
        alone = typer.Typer(add_completion=False, rich_markup_mode=None)
        alone.command(self.name, cls=_GroupedCommand)(with_exit_code(command))
        found = typer.main.get_command(alone)
        for parameter in found.params:
            if isinstance(parameter, TyperArgument):
                # The name of a Python type tells a user nothing that its own name does not.
                parameter.display_type_rich = _nothing  # type: ignore[method-assign]
        return found


def group(name: str, summary: str, commands: Mapping[str, LazyCommand]) -> TyperGroup:
    """Commands under a common name."""
    return TyperGroup(
        name=name,
        help=summary,
        commands=dict(commands),
        no_args_is_help=True,
        rich_markup_mode=None,
    )


def commands_of(command: Any) -> dict[str, Any]:
    """The commands of a group by their names, those of plug-ins too; of a command none."""
    if isinstance(command, LazyCommand) and command.groups:
        return dict(command.groups)
    loaded = command.loaded() if isinstance(command, LazyCommand) else command
    if not isinstance(loaded, TyperGroup):
        return {}
    context = Context(loaded)
    return {name: loaded.get_command(context, name) for name in loaded.list_commands(context)}


def _summary(command: Callable[..., Any]) -> str:
    return (inspect.getdoc(command) or "").partition("\n\n")[0]


def _nothing(ctx: Any) -> None:  # noqa: ARG001 - asked for by name
    return None


def _same(command: Callable[..., Any]) -> Command:
    return command


def imported(target: str) -> Callable[[], Callable[..., Any]]:
    """What imports `module:function` when it is called."""

    def load() -> Callable[..., Any]:
        module, _, function = target.partition(":")
        found: Callable[..., Any] = getattr(import_module(module), function)
        return found

    return load
