"""`instep follow`: what a provider streams, on the terminal; without configuration or store."""

from __future__ import annotations

import asyncio
import logging
from typing import Annotated, Any

import typer

from instep.cli.output import Format, FormatOption
from instep.cli.signals import until_signalled
from instep.cli.store import LimitOption
from instep.errors import ConfigurationError, NoStreamError
from instep.model.streams import Start
from instep_tapi.cli.connection import (
    AuthConfigOption,
    CaOption,
    InsecureOption,
    ProxyOption,
    RootOption,
    TokenFileOption,
    TokenOption,
    UrlArgument,
    connection,
    open_source,
)

__all__ = ["follow"]


def follow(  # noqa: PLR0917 - a command has as many parameters as options
    url: UrlArgument,
    streams: Annotated[
        list[str] | None,
        typer.Option("--stream", metavar="ID", help="Only this stream; repeatable."),
    ] = None,
    classes: Annotated[
        list[str] | None,
        typer.Option("--class", metavar="CLASS", help="Only this class; repeatable."),
    ] = None,
    entities: Annotated[
        bool,
        typer.Option(
            "--entities/--records", help="Changes of entities, or each record as it comes."
        ),
    ] = False,
    begin: Annotated[
        Start, typer.Option("--from", help="The oldest record of the log, or only new ones.")
    ] = Start.OLDEST,
    limit: LimitOption = None,
    output: FormatOption = Format.TABLE,
    token: TokenOption = None,
    token_file: TokenFileOption = None,
    auth_config: AuthConfigOption = None,
    ca: CaOption = None,
    insecure: InsecureOption = False,
    proxy: ProxyOption = None,
    root: RootOption = None,
) -> None:
    """Print the records of a TAPI provider.

    It ends at Ctrl-C or SIGTERM. Nothing is stored. With --entities it prints changes: created,
    updated, deleted, and swept for an entity that ended while no connection was open. It keeps the
    entities in memory.

    Example: instep follow https://controller:8443 --class LINK --limit 10
    """
    if entities and begin is Start.LATEST:
        raise ConfigurationError(
            "--entities was given with --from latest",
            where="follow",
            hint="--entities reads from the oldest record on: leave one of them out",
        )
    options = connection(
        url,
        token=token,
        token_file=token_file,
        auth_config=auth_config,
        ca=ca,
        insecure=insecure,
        proxy=proxy,
        root=root,
    )
    # A stream is chosen by what it carries; of that, records of other classes are left out.
    options["streams"] = {
        "ids": streams or [],
        "classes": classes or [],
        "only_classes": classes or [],
    }
    until_signalled(_follow(options, begin, entities, limit, output))


async def _follow(
    options: dict[str, Any], start: Start, entities: bool, limit: int | None, output: Format
) -> None:
    from instep_tapi.cli.follow_entities import follow_entities
    from instep_tapi.cli.follow_printer import FollowPrinter
    from instep_tapi.cli.follow_records import follow_records

    source = open_source(options)
    printer = FollowPrinter(output, limit)
    counted = "changes" if entities else "records"
    try:
        if entities:
            await follow_entities(source, printer)
        else:
            await follow_records(source, start, printer)
    except NoStreamError as error:
        if not (options["streams"]["ids"] or options["streams"]["classes"]):
            raise
        raise ConfigurationError(error.message, where=error.where, hint=error.hint) from error
    except asyncio.CancelledError:
        printer.flush()
        printer.say(f"stopped; {printer.lines:,} {counted} were printed", logging.INFO)
        raise
    finally:
        printer.flush()
        await source.close()
