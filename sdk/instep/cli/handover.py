"""`instep handover`: lets another process of a pair consume (planned work on the active one)."""

from __future__ import annotations

import asyncio

import typer

from instep.cli.output import Format, FormatOption, json_line, plain
from instep.cli.store import ConfigArgument, ConsumerOption, StoreOption, open_store
from instep.errors import ConfigurationError
from instep.ports.reader import LeaseReader

__all__ = ["handover"]

_LEASES = 3.0
"""Within so many `lease_s` the holder has seen the request, and a process has taken the lease."""
_POLL_S = 0.1


async def handover(
    config: ConfigArgument = None,
    store: StoreOption = None,
    consumer: ConsumerOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Ask the active process to hand over to its standby, and wait for it.

    Leave out --consumer if there is only one. Ends with 1 if nobody else takes over.

    Example: instep handover --consumer east
    """
    chosen = consumer if store is None else None
    async with open_store(config, store, chosen, "handover") as place:
        reader = LeaseReader.of(place.reader)
        known = {consumer} if consumer else set(place.consumers)
        known = known or set(await reader.leases())
        if len(known) != 1:
            raise ConfigurationError(
                "it is not clear which consumer is meant",
                where="handover",
                hint=f"name it with --consumer; there are: {', '.join(sorted(known)) or 'none'}",
            )
        (name,) = known
        before = await reader.ask_to_hand_over(name)
        now = before
        try:
            async with asyncio.timeout(_LEASES * before.lease_s):
                while now.epoch == before.epoch or not now.holder:
                    await asyncio.sleep(_POLL_S)
                    now = (await reader.leases())[name]
        except TimeoutError:
            pass
    done = now.epoch != before.epoch and now.holder not in ("", before.holder)
    if output is Format.JSONL:
        json_line({"consumer": name, "before": before.holder, "holder": now.holder, "done": done})
    elif done:
        typer.echo(plain(f"{name}: {before.holder} handed over to {now.holder}"))
    else:
        typer.echo(plain(f"{name}: nobody took over from {before.holder}"), err=True)
    if not done:
        raise typer.Exit(1)
