"""`instep conformance tapi`: judges a TAPI provider by TR-548, with evidence."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from instep.cli.conformance.printing import (
    HtmlOption,
    JunitOption,
    ReportFormat,
    ReportFormatOption,
    print_report,
)
from instep.cli.conformance.recording import TraceOption, recording
from instep.cli.output import plain
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

YangOption = Annotated[
    Path | None,
    typer.Option(
        "--yang", metavar="FOLDER", help="Judge bodies by the YANG modules there (*.yang)."
    ),
]


def tapi(  # noqa: PLR0917 - a command has as many parameters as options
    url: UrlArgument,
    token: TokenOption = None,
    token_file: TokenFileOption = None,
    auth_config: AuthConfigOption = None,
    ca: CaOption = None,
    insecure: InsecureOption = False,
    proxy: ProxyOption = None,
    root: RootOption = None,
    ids: Annotated[
        list[str] | None,
        typer.Option("--stream", metavar="ID", help="Only this stream; repeatable."),
    ] = None,
    minutes: Annotated[
        float, typer.Option(metavar="NUMBER", min=0.01, help="How long streams are read.")
    ] = 2.0,
    active: Annotated[
        bool,
        typer.Option(
            "--active",
            help="Close and reconnect, use tokens again, read slowly, hold Pongs, be two clients.",
        ),
    ] = False,
    edition: Annotated[
        str, typer.Option("--tapi", metavar="EDITION", help="2.1.3 or 2.6; default: as it shows.")
    ] = "",
    yang: YangOption = None,
    trace: TraceOption = None,
    output: ReportFormatOption = ReportFormat.TABLE,
    html: HtmlOption = None,
    junit: JunitOption = None,
) -> None:
    """Judge a TAPI provider by the statements of TR-548.

    By default it reads as a consumer does, one connection a stream, and stores nothing.
    --active does more, each step named before it is done, and all within what the provider states.

    Each rule is held, broken (with what shows it), or was not seen. Ends with 1 if a MUST is
    broken. A proxy on the way can break rules as well as the provider.

    Example: instep conformance tapi https://controller:8443 --minutes 5
    """
    from instep.conformance import TraceJudge
    from instep_tapi.conformance.book import tapi_rules
    from instep_tapi.conformance.probe import ACTIVE, PROBED, probe_source
    from instep_tapi.conformance.yang import YangModules

    if edition not in {"", "2.1.3", "2.6"}:
        raise typer.BadParameter(f"{edition!r} is not an edition: write 2.1.3 or 2.6")
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
    options["streams"] = {"ids": ids or []}
    options |= ACTIVE if active else PROBED
    modules = None if yang is None else YangModules(yang)
    judging = TraceJudge(tapi_rules(edition, modules), url)

    def say(text: str) -> None:
        typer.echo(plain(text), err=True)

    def note(text: str) -> None:
        judging.notes.append(text)

    with recording(trace, judging) as record:
        probing = probe_source(
            open_source(options), minutes * 60.0, record, note, active=active, say=say
        )
        asyncio.run(probing)
    print_report(judging.report(), output, html_file=html, junit_file=junit)
