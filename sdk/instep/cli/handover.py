"""`instep handover`: lets another process of a pair consume (planned work on the active one)."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from instep.cli.output import plain
from instep.cli.store import StoreOption, open_reader

__all__ = ["handover"]

_LEASES = 3.0
"""Within so many `lease_s` the holder has seen the request, and a process has taken the lease."""
_POLL_S = 0.1


def handover(
    store: StoreOption,
    consumer: Annotated[
        str, typer.Option("--consumer", metavar="NAME", help="The consumer, as configured.")
    ],
) -> None:
    """Ask the process that consumes to hand over to the one that stands by, and wait for it.

    Ends with 1 where nobody else takes over.
    """
    asyncio.run(_handover(store, consumer))


async def _handover(url: str, consumer: str) -> None:
    async with open_reader(url) as reader:
        before = await reader.ask_to_hand_over(consumer)
        now = before
        try:
            async with asyncio.timeout(_LEASES * before.lease_s):
                while now.epoch == before.epoch or not now.holder:
                    await asyncio.sleep(_POLL_S)
                    now = (await reader.leases())[consumer]
        except TimeoutError:
            pass
    if now.epoch != before.epoch and now.holder not in ("", before.holder):
        typer.echo(plain(f"{consumer}: {before.holder} handed over to {now.holder}"))
        return
    typer.echo(plain(f"{consumer}: nobody took over from {before.holder}"), err=True)
    raise typer.Exit(1)
