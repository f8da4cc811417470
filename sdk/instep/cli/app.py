"""Puts the commands together, those of plug-ins too; none is imported before it is run."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable, Iterator
from functools import partial
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from instep.cli.command_group import LazyCommand, group, imported
from instep.cli.debug import DEBUG
from instep.config.entry_points import (
    command_points,
    conformance_points,
    load_command,
    summary,
)

__all__ = ["BELOW", "COMMANDS", "CONFORMANCE", "GROUPS", "app"]

COMMANDS: Final = {
    "check": (
        "instep.cli.check:check",
        "Check a configuration; connect to nothing.",
    ),
    "config": (
        "instep.cli.config:config",
        "Show every key that a configuration may have.",
    ),
    "run": ("instep.cli.run:run", "Keep stores in step with their providers."),
    "status": (
        "instep.cli.status:status",
        "Show position, read delay and deviations of streams.",
    ),
    "audit": (
        "instep.cli.audit:audit",
        "Compare stores with their providers; repair them.",
    ),
    "entities": ("instep.cli.entities:entities", "List or count the entities of a store."),
    "changes": (
        "instep.cli.changes:changes",
        "List or follow the committed changes of a store.",
    ),
    "messages": (
        "instep.cli.messages:messages",
        "List the delivered messages of a store.",
    ),
    "reload": (
        "instep.cli.reload:reload",
        "Let a running process read its configuration again.",
    ),
    "monitor": (
        "instep.cli.monitor.command:monitor",
        "Watch streams, sequences and quarantine on a terminal.",
    ),
    "handover": (
        "instep.cli.handover:handover",
        "Let the process that stands by take over.",
    ),
}
"""Name → the function of a command, and its line in the list of commands."""

GROUPS: Final = {
    "entity": (
        "Look at one entity.",
        {"show": ("instep.cli.entities:show", "Show one entity whole.")},
    ),
    "streams": (
        "See the streams of a store, and retire lost ones.",
        {
            "list": ("instep.cli.streams:list_", "List streams with their phase."),
            "show": ("instep.cli.streams:show", "Show streams whole."),
            "retire": ("instep.cli.streams:retire", "Remove a stream that is not offered."),
        },
    ),
    "plugin": (
        "Begin a plug-in of your own.",
        {"new": ("instep.cli.plugin:new", "Write a source with its tests, to begin with.")},
    ),
    "quarantine": (
        "See and replay records that could not be read or handled.",
        {
            "list": ("instep.cli.quarantine:list_", "List the entries, oldest first."),
            "show": ("instep.cli.quarantine:show", "Show one entry whole, with its bytes."),
            "replay": ("instep.cli.quarantine:replay", "Read entries again, and commit them."),
            "accept": ("instep.cli.quarantine:accept", "Accept that a record is lost."),
            "drop": ("instep.cli.quarantine:drop", "Forget entries for good."),
        },
    ),
    "sequences": (
        "See numbered sequences, and help those that are stuck.",
        {
            "list": ("instep.cli.sequences:list_", "Show what is received, missing and waiting."),
            "show": ("instep.cli.sequences:show", "Show what became of each number of a sequence."),
            "give-up": (
                "instep.cli.sequences:give_up",
                "Go on without the messages that are missing.",
            ),
            "reset": ("instep.cli.sequences:reset", "Let a sequence begin anew."),
            "close": ("instep.cli.sequences:close", "Accept nothing more of a sequence."),
            "resume": ("instep.cli.sequences:resume", "Let a failed sequence go on."),
        },
    ),
    "sweep": (
        "See sweeps that the guard holds, and release them.",
        {
            "status": ("instep.cli.sweep:status", "Show held sweeps, and what they would remove."),
            "release": ("instep.cli.sweep:release", "Let held sweeps go on."),
        },
    ),
}
"""Name → the line of a group in that list, and its commands as in `COMMANDS`."""


BELOW: Final = {
    "messages": {
        "dead": (
            "See, deliver and forget what was accepted and is not delivered.",
            {
                "list": ("instep.cli.dead_letter:list_", "List it, with the reasons."),
                "show": ("instep.cli.dead_letter:show", "Show one message whole."),
                "replay": ("instep.cli.dead_letter:replay", "Deliver messages of it."),
                "export": ("instep.cli.dead_letter:export", "Write all of it as JSON lines."),
                "drop": ("instep.cli.dead_letter:drop", "Forget messages for good."),
            },
        )
    }
}
"""Name of a command → its groups, each as in `GROUPS`."""


CONFORMANCE: Final = {
    "config": (
        "instep.cli.conformance.command:config",
        "Judge the peer of a configured consumer.",
    ),
    "report": (
        "instep.cli.conformance.stored:report",
        "Print what a running consumer has found of its peer.",
    ),
    "trace": ("instep.cli.conformance.command:trace", "Judge a trace that was written by --trace."),
}
"""The commands of `instep conformance` that no adapter brings, as in `COMMANDS`."""


class _Root(TyperGroup):
    """All commands: first our own, then those of plug-ins."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands.update(_lazy(COMMANDS))
        for name, groups in BELOW.items():
            words, target = COMMANDS[name][1], COMMANDS[name][0]
            below = {
                inner: group(inner, told, _lazy(verbs)) for inner, (told, verbs) in groups.items()
            }
            self.commands[name] = LazyCommand(name, words, imported(target), below)
        for name, (words, verbs) in GROUPS.items():
            self.commands[name] = group(name, words, _lazy(verbs))
        self.commands["conformance"] = _Conformance(
            name="conformance",
            help="Judge a peer by its specification, with evidence.",
            no_args_is_help=True,
            rich_markup_mode=None,
        )
        self._looked_for_plugins = False

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """See click. Plug-ins are looked for where the command is none of ours."""
        if cmd_name not in self.commands:
            self._look_for_plugins()
        return super().get_command(ctx, cmd_name)

    def list_commands(self, ctx: Any) -> list[str]:
        """See click."""
        self._look_for_plugins()
        return super().list_commands(ctx)

    def _look_for_plugins(self) -> None:
        if not self._looked_for_plugins:
            self._looked_for_plugins = True
            self.commands.update(_plugged(command_points()))


class _Conformance(TyperGroup):
    """The commands of the adapters, one a protocol, and those that need none."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands.update(_lazy(CONFORMANCE))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """See click."""
        self._look_for_adapters()
        return super().get_command(ctx, cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """See click: a file stands for `config` and the file."""
        if args[0] not in self.list_commands(ctx) and Path(args[0]).is_file():
            args = ["config", *args]
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:
        """See click."""
        self._look_for_adapters()
        return super().list_commands(ctx)

    def _look_for_adapters(self) -> None:
        if len(self.commands) == len(CONFORMANCE):
            self.commands.update(_plugged(conformance_points()))


def _lazy(table: dict[str, tuple[str, str]]) -> dict[str, LazyCommand]:
    return {
        name: LazyCommand(name, words, imported(target)) for name, (target, words) in table.items()
    }


def _plugged(points: Iterable[EntryPoint]) -> Iterator[tuple[str, LazyCommand]]:
    for point in points:
        yield point.name, LazyCommand(point.name, summary(point), partial(load_command, point))


app = typer.Typer(
    cls=_Root,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"instep {importlib.metadata.version('instep')}")
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    _shown: Annotated[
        bool,
        typer.Option("--version", "-V", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Keeps a store in step with a provider.

    Exit codes: 0 done, 1 failed, 2 wrong usage or configuration.
    """
    DEBUG.set(debug)
