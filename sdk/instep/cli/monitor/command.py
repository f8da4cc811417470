"""The command itself: what is looked at."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from instep.cli.monitor.reading import MonitoredPlace
from instep.cli.monitor.screen import Monitor
from instep.cli.store import ConfigArgument, ConsumerOption, StoreOption, places_of
from instep.config.file import default_path, load
from instep.errors import ConfigurationError
from instep.model.listen import listen_url

__all__ = ["monitor"]


def monitor(
    config: ConfigArgument = None,
    store: StoreOption = None,
    consumer: ConsumerOption = None,
    url: Annotated[
        str | None,
        typer.Option("--url", metavar="URL", help="The port of a process: http://127.0.0.1:9464."),
    ] = None,
    every_s: Annotated[
        float,
        typer.Option("--every", metavar="SECONDS", min=0.2, help="Seconds between two looks."),
    ] = 2.0,
) -> None:
    """Watch streams, sequences, quarantine and alarms on a terminal, by keyboard.

    The figures come from the port of the running process ([operations] listen). Without a port, or
    while none answers, they come from the store. With --url alone there is no store to look into.

    Example: instep monitor --url http://127.0.0.1:9464
    """
    stores = {} if url and not (config or store) else places_of(config, store, consumer, "monitor")
    place = MonitoredPlace(url or _port_of(config, store), stores, consumer)
    if not sys.stdout.isatty():
        raise ConfigurationError(
            "the output is not a terminal",
            where="monitor",
            hint="for a program, use `instep status --format jsonl` or the port",
        )
    Monitor(place, every_s).run()


def _port_of(config: Path | None, store: str | None) -> str:
    """The port that the configuration names; empty: none."""
    if store is not None:
        return ""
    path = config or default_path()
    listen = load(path).operations.listen
    return listen_url(listen, f"{path}: operations.listen") if listen else ""
