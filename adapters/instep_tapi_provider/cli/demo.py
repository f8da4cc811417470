"""`instep demo`: a provider, a consumer, faults, and the proof that both sides agree."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from instep.cli.output import Format, FormatOption

__all__ = ["demo"]


def demo(
    topology: Annotated[
        str,
        typer.Option(metavar="NAME", help="A backbone of topohub: the network of the provider."),
    ] = "sndlib/germany50",
    storm: Annotated[
        float, typer.Option(metavar="RATE", min=1.0, help="Changes per second of the storm.")
    ] = 400.0,
    seed: Annotated[
        int,
        typer.Option(
            metavar="N", help="The seed of everything random: the same seed, the same run."
        ),
    ] = 0,
    store: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Where to keep the entities; default: a temporary file."),
    ] = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show alignment at work, in half a minute.

    A storm, a short loss, a long loss, and the comparison of provider and store.

    Ends with 0 only when provider and store are equal, entity by entity, and each step kept what
    it promises.

    Example: instep demo --store sqlite:///demo.db
    """
    from instep_tapi_provider.cli.demo_script import DemoScript

    with tempfile.TemporaryDirectory(prefix="instep-demo-") as folder:
        url = store or f"sqlite:///{Path(folder) / 'network.db'}"
        console = Console(highlight=False, quiet=output is Format.JSONL)
        script = DemoScript(console, topology=topology, seed=seed, store=url, output=output)
        if not asyncio.run(script.run(storm)):
            raise typer.Exit(1)
