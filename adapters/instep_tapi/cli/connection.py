"""The options with which a command reaches a provider: its address, the login, TLS, a proxy."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from instep.errors import ConfigurationError

if TYPE_CHECKING:
    from instep_tapi.source import Survey, TapiSource

__all__ = [
    "AuthConfigOption",
    "CaOption",
    "InsecureOption",
    "ProxyOption",
    "RootOption",
    "TokenFileOption",
    "TokenOption",
    "UrlArgument",
    "connection",
    "open_source",
    "survey",
]

UrlArgument = Annotated[str, typer.Argument(metavar="URL", help="The provider: https://host:port.")]
TokenOption = Annotated[
    str | None,
    typer.Option(
        "--token",
        metavar="TOKEN",
        help="A bearer token.",
        envvar="INSTEP_TOKEN",
        show_envvar=True,
        rich_help_panel="Connection",
    ),
]
TokenFileOption = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="A file that holds a bearer token.",
        dir_okay=False,
        rich_help_panel="Connection",
    ),
]
AuthConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--auth-config",
        metavar="FILE",
        help="A TOML file with the table `auth` of a source.",
        dir_okay=False,
        rich_help_panel="Connection",
    ),
]
CaOption = Annotated[
    Path | None,
    typer.Option(
        "--ca",
        metavar="FILE",
        help="A file with the certificates of the issuer (CA).",
        rich_help_panel="Connection",
    ),
]
InsecureOption = Annotated[
    bool,
    typer.Option(
        "--insecure", help="Do not verify the provider's certificate.", rich_help_panel="Connection"
    ),
]
ProxyOption = Annotated[
    str | None,
    typer.Option(
        "--proxy", metavar="URL", help="URL of an HTTP proxy.", rich_help_panel="Connection"
    ),
]
RootOption = Annotated[
    list[str] | None,
    typer.Option(
        "--root",
        metavar="PATH",
        help="A RESTCONF root to try; repeatable.",
        rich_help_panel="Connection",
    ),
]


def connection(
    url: str,
    *,
    token: str | None,
    token_file: Path | None,
    auth_config: Path | None,
    ca: Path | None,
    insecure: bool,
    proxy: str | None,
    root: list[str] | None,
) -> dict[str, Any]:
    """The options as the table of a `tapi` source. Raises `ConfigurationError`."""
    options: dict[str, Any] = {
        "endpoints": [url],
        "roots": root or [],
        "auth": _auth(token, token_file, auth_config),
        "tls": {"verify": "off" if insecure else "on", **({"ca": str(ca)} if ca else {})},
    }
    if proxy is not None:
        options["proxy"] = proxy
    return options


def open_source(options: dict[str, Any]) -> TapiSource:
    """A source with these options; the caller closes it. Raises `ConfigurationError`."""
    from instep_tapi.options import read_options
    from instep_tapi.source import TapiSource

    try:
        return TapiSource(read_options(options, "options"), "options")
    except ConfigurationError as error:
        if error.where == "options.endpoints":
            error.where = "URL"  # as the command line calls it
        raise


async def survey(options: dict[str, Any]) -> Survey:
    """What the provider offers, and what of it a source with these options would follow."""
    source = open_source(options)
    try:
        return await source.survey()
    finally:
        await source.close()


def _auth(token: str | None, token_file: Path | None, auth_config: Path | None) -> dict[str, Any]:
    if auth_config is None:
        if token_file is not None:
            return {"kind": "bearer", "token_file": str(token_file)}
        return {"kind": "bearer", "token": token} if token else {"kind": "none"}
    from instep.config.env_vars import expand

    try:
        table = tomllib.loads(auth_config.read_text())
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"cannot be read: {type(error).__name__}", where=str(auth_config)
        ) from error
    auth, _ = expand(table.get("auth", table), f"{auth_config}: auth", os.environ)
    return dict(auth) if isinstance(auth, dict) else {"kind": auth}
