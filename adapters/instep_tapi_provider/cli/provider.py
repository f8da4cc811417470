"""`instep provider`: serve the simulated provider until a signal stops it."""

import asyncio
import json
import re
import signal
import ssl
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from instep.cli.signals import outlive_hangup
from instep.errors import ConfigurationError
from instep_tapi.facts.names import CONDITION_DETECTOR, LogRecordStrategy, LogStorageStrategy
from instep_tapi.facts.stream_profile import TAPI_2_1_3, TAPI_2_6

if TYPE_CHECKING:
    from instep_tapi_provider import Context, Provider

_PERIOD = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd]?)")
_UNIT_S = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class Strategy(StrEnum):
    """How the logs keep records; EMULATED is emulated compaction (TR-548 3.19.2)."""

    COMPACTED = "COMPACTED"
    EMULATED = "EMULATED"
    TRUNCATED = "TRUNCATED"
    FULL_HISTORY = "FULL_HISTORY"


class Edition(StrEnum):
    """The model of TAPI that is served: 2.1.3 (TR-548 v1.1), or 2.4 to 2.6 (v3.2)."""

    TAPI_2_1_3 = TAPI_2_1_3
    TAPI_2_6 = TAPI_2_6


class Format(StrEnum):
    """How the provider prints where it listens."""

    TABLE = "table"
    JSONL = "jsonl"


def period_s(text: str) -> float:
    """Seconds in a period such as ``90``, ``30s``, ``10m``, ``4h`` or ``1d``."""
    match = _PERIOD.fullmatch(text.strip())
    if match is None:
        raise typer.BadParameter(f"{text!r} is not a period: write 30s, 10m, 4h or 1d")
    return float(match[1]) * _UNIT_S[match[2]]


def _fault(text: str) -> tuple[str, Any]:
    name, given, value = text.partition("=")
    try:
        name = name.strip().replace("-", "_")
        if name == "deviates":
            return name, value
        return name, json.loads(value) if given else True
    except json.JSONDecodeError as error:
        raise typer.BadParameter(f"{text!r}: write NAME or NAME=NUMBER") from error


def provider(  # noqa: PLR0917 - options, given by name on the command line
    context: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A TAPI context in JSON to serve.",
            dir_okay=False,
            rich_help_panel="Network",
        ),
    ] = None,
    topology: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="A backbone of topohub, such as sndlib/germany50.",
            rich_help_panel="Network",
        ),
    ] = None,
    services: Annotated[
        int,
        typer.Option(
            metavar="N", help="Services laid over the backbone.", min=0, rich_help_panel="Network"
        ),
    ] = 200,
    tapi: Annotated[
        Edition,
        typer.Option(
            help="The edition of TAPI; 2.6 stands for 2.4 to 2.6.", rich_help_panel="Network"
        ),
    ] = Edition.TAPI_2_1_3,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="The address to listen on.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(metavar="PORT", help="The port; 0 takes a free one.", min=0)
    ] = 0,
    root: Annotated[
        str, typer.Option(metavar="PATH", help="The RESTCONF root; empty for plain /data.")
    ] = "/restconf",
    strategy: Annotated[
        Strategy,
        typer.Option(help="What the logs keep.", case_sensitive=False, rich_help_panel="Log"),
    ] = Strategy.COMPACTED,
    record_strategy: Annotated[
        LogRecordStrategy,
        typer.Option(help="What a record states.", case_sensitive=False, rich_help_panel="Log"),
    ] = LogRecordStrategy.WHOLE_ENTITY_ON_CHANGE,
    statement_period: Annotated[
        str,
        typer.Option(
            metavar="PERIOD",
            help="With WHOLE_ENTITY_PERIODIC: how often all is stated.",
            rich_help_panel="Log",
        ),
    ] = "15m",
    information: Annotated[
        str | None,
        typer.Option(
            metavar="PERIOD",
            help="With --tapi 2.6: how often a log gets an information record.",
            rich_help_panel="Log",
        ),
    ] = None,
    partitions: Annotated[
        int, typer.Option(metavar="N", help="Partitions of each log.", min=1, rich_help_panel="Log")
    ] = 1,
    compaction_delay: Annotated[
        str,
        typer.Option(
            metavar="PERIOD", help="How long every record is kept.", rich_help_panel="Log"
        ),
    ] = "10m",
    tombstone_retention: Annotated[
        str,
        typer.Option(metavar="PERIOD", help="How long tombstones are kept.", rich_help_panel="Log"),
    ] = "4h",
    record_retention: Annotated[
        str,
        typer.Option(
            metavar="PERIOD",
            help="How long a TRUNCATED or EMULATED log keeps records.",
            rich_help_panel="Log",
        ),
    ] = "24h",
    record_limit: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="How many records a TRUNCATED log keeps.",
            min=1,
            rich_help_panel="Log",
        ),
    ] = None,
    time_scale: Annotated[
        float,
        typer.Option(
            metavar="NUMBER",
            help="How many seconds of these periods pass in one.",
            min=1e-6,
            rich_help_panel="Log",
        ),
    ] = 1.0,
    wrapper: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Frames: bare, list, log-record, stream-record or notification.",
            rich_help_panel="Frames",
        ),
    ] = "bare",
    records_per_frame: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Records a frame, with a wrapper that holds several.",
            min=1,
            rich_help_panel="Frames",
        ),
    ] = 1,
    alarms: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Alarms that are active at the start.",
            min=0,
            rich_help_panel="Changes",
        ),
    ] = 100,
    storm: Annotated[
        float,
        typer.Option(
            metavar="RATE",
            help="Changes per second of an event storm; 0 for none.",
            min=0,
            rich_help_panel="Changes",
        ),
    ] = 0.0,
    storm_keys: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="How many keys the storm changes.", min=1, rich_help_panel="Changes"
        ),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="The seed of everything random: the same seed, the same run.",
            rich_help_panel="Changes",
        ),
    ] = 0,
    token: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOKEN",
            help="A Bearer token that is accepted; repeatable.",
            rich_help_panel="Login and TLS",
        ),
    ] = None,
    oauth2: Annotated[
        str | None,
        typer.Option(
            metavar="CLIENT:SECRET",
            help="CLIENT:SECRET for OAuth2 at /oauth2/token.",
            rich_help_panel="Login and TLS",
        ),
    ] = None,
    user: Annotated[
        str | None,
        typer.Option(
            metavar="USER:PASSWORD",
            help="USER:PASSWORD for OAuth2 and the JSON login.",
            rich_help_panel="Login and TLS",
        ),
    ] = None,
    token_life: Annotated[
        str,
        typer.Option(
            metavar="PERIOD", help="How long a login lasts.", rich_help_panel="Login and TLS"
        ),
    ] = "1h",  # noqa: S107 - a period
    tls_cert: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Certificate chain, PEM.", rich_help_panel="Login and TLS"
        ),
    ] = None,
    tls_key: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Private key, PEM.", rich_help_panel="Login and TLS"),
    ] = None,
    pong_timeout: Annotated[
        str,
        typer.Option(
            metavar="PERIOD",
            help="Real time without a Pong after which a client is dropped.",
            rich_help_panel="Frames",
        ),
    ] = "30s",
    sign: Annotated[
        str | None,
        typer.Option(
            metavar="SECRET",
            help="Sign each record by HMAC-SHA256 with this secret.",
            rich_help_panel="Frames",
        ),
    ] = None,
    compression: Annotated[
        bool, typer.Option(help="Accept permessage-deflate.", rich_help_panel="Frames")
    ] = True,
    host_meta: Annotated[bool, typer.Option(help="Answer /.well-known/host-meta.")] = True,
    fault: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FAULT",
            help="A fault, NAME or NAME=NUMBER, such as rewind-records=50 or deviates=no-token;"
            " repeatable.",
            rich_help_panel="Faults",
        ),
    ] = None,
    control: Annotated[
        bool,
        typer.Option(
            help="Serve /_instep/, without login, to steer it from outside.",
            rich_help_panel="Faults",
        ),
    ] = False,
    ready_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A file to write the URL to when it serves.")
    ] = None,
    output: Annotated[
        Format, typer.Option("--format", help="How it prints its address.")
    ] = Format.TABLE,
) -> None:
    """Serve a simulated TAPI provider (TR-548).

    It serves --context, or --topology, or by default the backbone sndlib/germany50, until SIGINT
    or SIGTERM.

    Example: instep provider --storm 20 --fault rewind-records=50
    """
    from instep_tapi.wire.authenticity import Hmac, HmacOptions
    from instep_tapi_provider import (
        AuthSettings,
        DiscoveryStyle,
        Faults,
        Provider,
        ProviderSettings,
        RecordStyle,
        StreamSettings,
        Wrapper,
    )

    if context is not None and topology is not None:
        raise typer.BadParameter("choose one of --context and --topology")
    if information is not None and tapi is Edition.TAPI_2_1_3:
        raise typer.BadParameter("--information needs --tapi 2.6")
    try:
        signer = Hmac(HmacOptions(sign)).sign if sign else None
        style = RecordStyle(Wrapper(wrapper), records_per_frame, sign=signer)
        log: dict[str, Any] = {
            "storage": LogStorageStrategy.COMPACTED
            if strategy is Strategy.EMULATED
            else LogStorageStrategy(strategy.value),
            "emulated": strategy is Strategy.EMULATED,
            "record_strategy": record_strategy,
            "partitions": partitions,
            "compaction_delay_s": period_s(compaction_delay),
            "tombstone_retention_s": period_s(tombstone_retention),
            "retention_s": period_s(record_retention),
            "retention_records": record_limit,
            "statement_period_s": period_s(statement_period),
            "information_period_s": period_s(information) if information else None,
            "style": style,
        }
        auth = AuthSettings(
            tokens=frozenset(token or ()),
            token_life_s=period_s(token_life),
            **_pair("client_id", "client_secret", oauth2, "--oauth2"),
            **_pair("username", "password", user, "--user"),
        )
        settings = ProviderSettings(
            host=host,
            port=port,
            root=root.rstrip("/"),
            streams=(
                StreamSettings("network", **log),
                StreamSettings("alarms", frozenset({CONDITION_DETECTOR}), **log),
            ),
            auth=auth,
            discovery=DiscoveryStyle(host_meta=host_meta),
            tls=_tls(tls_cert, tls_key),
            time_scale=time_scale,
            pong_timeout_s=period_s(pong_timeout),
            compression=compression,
            control=control,
            seed=seed,
        ).of_edition(tapi)
        faults = Faults()
        faults.set(**dict(_fault(text) for text in fault or ()))
        content = _content(context, topology, services, tapi)
        served = Provider(content, settings, faults=faults)
        served.raise_alarms(alarms)
    except (ConfigurationError, ValueError) as error:
        typer.echo(f"instep provider: {error}", err=True)
        raise typer.Exit(2) from error
    try:
        asyncio.run(_serve(served, (storm, storm_keys), ready_file, output))
    except ConfigurationError as error:
        typer.echo(f"instep provider: {error}", err=True)
        raise typer.Exit(1) from error


def _pair(first: str, second: str, text: str | None, option: str) -> dict[str, str]:
    if text is None:
        return {}
    name, colon, secret = text.partition(":")
    if not colon or not name:
        raise typer.BadParameter(f"{option} needs NAME:SECRET")
    return {first: name, second: secret}


def _content(context: Path | None, topology: str | None, services: int, tapi: Edition) -> "Context":
    if context is not None:
        from instep_tapi_provider import Context

        return Context.load(context)
    from instep_tapi_provider.topology import topology_context

    return topology_context(topology or "sndlib/germany50", services=services, tapi=tapi)


def _tls(certificate: Path | None, key: Path | None) -> ssl.SSLContext | None:
    if certificate is None:
        if key is not None:
            raise typer.BadParameter("--tls-key needs --tls-cert")
        return None
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        tls.load_cert_chain(certificate, key)
    except OSError as error:  # ssl.SSLError is one
        raise ConfigurationError(
            f"no usable certificate: {error}", where=str(certificate)
        ) from error
    return tls


async def _serve(
    served: "Provider", storm: tuple[float, int | None], ready_file: Path | None, output: Format
) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    outlive_hangup()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    async with served:
        if storm[0]:
            await served.start_storm(*storm)
        if ready_file is not None:
            ready_file.write_text(served.url + "\n")
        _announce(served, output)
        await stopped.wait()


def _announce(served: "Provider", output: Format) -> None:
    streams = [
        {
            "stream": s.stream_id,
            "uuid": s.uuid,
            "state": s.state.value,
            "entities": len(s.entities),
            "storage_strategy": "EMULATED" if s.settings.emulated else s.settings.storage.value,
        }
        for s in served.streams
    ]
    if output is Format.JSONL:
        line = {"url": served.url, "root": served.settings.root, "streams": streams}
        typer.echo(json.dumps(line))
        return
    # Narrow enough for a uuid, which is to be copied, at 80 columns.
    title = f"TAPI provider at {served.url}{served.settings.root}"
    table = Table(
        title=title,
        title_justify="left",
        box=SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 2, 0, 0),
    )
    for column in ("stream", "uuid", "state", "log", "entities"):
        table.add_column(column, overflow="fold", min_width=36 if column == "uuid" else None)
    for s in streams:
        row = (s["stream"], s["uuid"], s["state"], s["storage_strategy"], str(s["entities"]))
        table.add_row(*(str(cell) for cell in row))
    Console().print(table)
