"""`instep conformance wsrm`: which duties a source of WS-ReliableMessaging holds."""

from __future__ import annotations

from instep.cli.conformance.listening import ListenOption, MinutesOption, judge_senders
from instep.cli.conformance.printing import (
    HtmlOption,
    JunitOption,
    ReportFormat,
    ReportFormatOption,
)
from instep.cli.conformance.recording import TraceOption


def wsrm(
    listen: ListenOption = "http://127.0.0.1:0/",
    minutes: MinutesOption = 2.0,
    trace: TraceOption = None,
    output: ReportFormatOption = ReportFormat.TABLE,
    html: HtmlOption = None,
    junit: JunitOption = None,
) -> None:
    """Judge a source of WS-ReliableMessaging by what it sends.

    It listens, answers and acknowledges as a consumer does, and stores nothing. A rule is held,
    broken (with the envelopes that show it), or was not seen. Ends with 1 if a MUST is broken. A
    layer between can break them as well as the source.

    Example: instep conformance wsrm --listen http://127.0.0.1:9555/wsrm
    """
    options = {"listen": listen, "allow_unauthenticated": True}
    judge_senders("wsrm", options, minutes, trace=trace, output=output, html=html, junit=junit)
