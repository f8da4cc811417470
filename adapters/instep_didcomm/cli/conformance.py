"""`instep conformance didcomm`: which duties a sender of numbered messages holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from instep.cli.conformance.listening import ListenOption, MinutesOption, judge_senders
from instep.cli.conformance.printing import (
    HtmlOption,
    JunitOption,
    ReportFormat,
    ReportFormatOption,
)
from instep.cli.conformance.recording import TraceOption


def didcomm(
    listen: ListenOption = "http://127.0.0.1:0/",
    types: Annotated[
        list[str] | None,
        typer.Option(
            "--type", metavar="TYPE", help="A message type that is numbered; * matches any text."
        ),
    ] = None,
    secrets: Annotated[
        Path | None,
        typer.Option(
            "--secrets", metavar="FILE", help="Our secret keys, as in `secrets_file`.", exists=True
        ),
    ] = None,
    minutes: MinutesOption = 2.0,
    trace: TraceOption = None,
    output: ReportFormatOption = ReportFormat.TABLE,
    html: HtmlOption = None,
    junit: JunitOption = None,
) -> None:
    """Judge a sender of DIDComm messages with a sender_order.

    It listens and answers as a consumer does, and stores nothing. A rule is held, broken (with the
    messages that show it, decrypted), or was not seen. Ends with 1 if a MUST is broken. Without
    --secrets it reads plaintexts, and cannot ask for what is missing.

    Example: instep conformance didcomm --listen http://127.0.0.1:9555/didcomm
    """
    declared = [{"type": one, "sequenced": True} for one in types or ["*"]]
    options: dict[str, Any] = {
        "listen": listen,
        "allow_unauthenticated": True,
        "protocols": declared,
    }
    if secrets is not None:
        options["secrets_file"] = str(secrets)
    judge_senders("didcomm", options, minutes, trace=trace, output=output, html=html, junit=junit)
