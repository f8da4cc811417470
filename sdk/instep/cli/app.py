"""Puts the commands together, those of plug-ins too, and ends each by the same exit codes."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from typing import Annotated, Any

import typer

from instep.cli import (
    audit,
    changes,
    check,
    entities,
    handover,
    messages,
    quarantine,
    run,
    sequences,
    status,
    sweep,
)
from instep.cli.exit_codes import DEBUG, with_exit_code
from instep.config.plugins import commands
from instep.errors import ConfigurationError

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_quarantine = typer.Typer(
    no_args_is_help=True, help="Look at what could not be read or handled, and replay it."
)

_sweep = typer.Typer(
    no_args_is_help=True, help="Look at sweeps that the guard holds, and let them go on."
)

_sequences = typer.Typer(
    no_args_is_help=True, help="Look at numbered sequences, and help those that are stuck."
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
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Keeps a store in step with a provider.

    Exit codes: 0 done, 1 failed, 2 wrong usage or configuration.
    """
    DEBUG.set(debug)


def _failing(error: ConfigurationError) -> Any:
    """A command in place of one that cannot be loaded; running it prints the reason."""

    def fail(_arguments: Annotated[list[str] | None, typer.Argument(hidden=True)] = None) -> None:
        raise error

    fail.__doc__ = f"Not usable: {error.message}"
    return fail


def _add_commands() -> None:
    own: dict[str, Callable[..., None]] = {
        "check": check.check,
        "run": run.run,
        "status": status.status,
        "audit": audit.audit,
        "entities": entities.entities,
        "changes": changes.changes,
        "messages": messages.messages,
        "handover": handover.handover,
    }
    for name, command in own.items():
        app.command(name)(with_exit_code(command))
    _add_group(
        _quarantine,
        "quarantine",
        {
            "list": quarantine.list_,
            "show": quarantine.show,
            "replay": quarantine.replay,
            "drop": quarantine.drop,
        },
    )
    _add_group(
        _sequences,
        "sequences",
        {
            "list": sequences.list_,
            "give-up": sequences.give_up,
            "reset": sequences.reset,
            "close": sequences.close,
        },
    )
    _add_group(_sweep, "sweep", {"status": sweep.status, "release": sweep.release})
    for name, plugged in commands():
        if isinstance(plugged, ConfigurationError):
            anything = {"ignore_unknown_options": True}
            app.command(name, context_settings=anything)(with_exit_code(_failing(plugged)))
        else:
            app.command(name)(with_exit_code(plugged))


def _add_group(group: typer.Typer, name: str, commands: dict[str, Callable[..., None]]) -> None:
    for command, function in commands.items():
        group.command(command)(with_exit_code(function))
    app.add_typer(group, name=name)


_add_commands()
