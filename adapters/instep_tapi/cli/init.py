"""`instep init`: a first `instep.toml`, with comments, from what a provider offers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer

from instep.cli.output import Format, FormatOption, json_line, plain
from instep.config.file import default_path
from instep.errors import ConfigurationError, NoStreamError
from instep.model.durations import duration
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
    survey,
)

if TYPE_CHECKING:
    from instep_tapi.source import Survey

__all__ = ["init"]

_WIDTH: Final = 100
_STORE: Final = "sqlite:///network.db"


def init(  # noqa: PLR0917 - a command has as many parameters as options
    url: UrlArgument,
    file: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="The file to write; default: $INSTEP_CONFIG, else instep.toml.",
            dir_okay=False,
        ),
    ] = None,
    name: Annotated[
        str, typer.Option(metavar="NAME", help="The name of the consumer.")
    ] = "network",
    store: Annotated[str, typer.Option(metavar="URL", help="Where entities are kept.")] = _STORE,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that is there.")] = False,
    token: TokenOption = None,
    token_file: TokenFileOption = None,
    auth_config: AuthConfigOption = None,
    ca: CaOption = None,
    insecure: InsecureOption = False,
    proxy: ProxyOption = None,
    root: RootOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Write a commented configuration for a provider.

    It asks the provider for its streams, and lists them in the file. A token goes in as the
    variable ${INSTEP_TOKEN}, never itself.

    Example: instep init https://controller:8443 --output instep.toml
    """
    path = file or default_path()
    _require_free(path, force)
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
    found = asyncio.run(survey(options))
    if not found.choices:
        raise NoStreamError("the provider offers no stream", where=found.address.streams)
    written = _text(found, name, store, _source(options, url, auth_config))
    try:
        with path.open("w" if force else "x", encoding="utf-8") as opened:
            opened.write(written)
    except FileExistsError:
        _require_free(path, force)
    followed = sum(choice.chosen for choice in found.choices)
    if output is Format.JSONL:
        json_line({"file": str(path), "offered": len(found.choices), "followed": followed})
        return
    typer.echo(f"{plain(str(path))}: written; {followed} of {len(found.choices)} streams followed")
    named = "" if path == default_path() else f" {plain(str(path))}"
    typer.echo(f"next: instep check{named}, then instep run{named}")


def _require_free(path: Path, force: bool) -> None:
    if path.exists() and not force:
        raise ConfigurationError(
            "the file exists already",
            where=str(path),
            hint="name another by --output FILE, or overwrite it with --force",
        )


def _source(options: dict[str, Any], url: str, auth_config: Path | None) -> list[str]:
    """The lines of the source's table that come from the command line; no secret among them."""
    lines = [f"endpoints = [{_quoted(url)}]"]
    auth = options["auth"]
    if auth_config is not None:
        lines += [f"# auth = …           # copy the table from {_comment(str(auth_config))}"]
    elif "token_file" in auth:
        path = _quoted(str(Path(auth["token_file"]).absolute()))
        lines += [f'auth = {{ kind = "bearer", token_file = {path} }}']
    elif auth["kind"] == "bearer":
        lines += ['auth = { kind = "bearer", token = "${INSTEP_TOKEN}" }']
    else:
        lines += ['# auth = { kind = "bearer", token = "${INSTEP_TOKEN}" }   # or oauth2, login']
    tls = options["tls"]
    if tls["verify"] == "off":
        lines += ['tls = { verify = "off" }          # better: ca = "issuer.pem"']
    elif "ca" in tls:
        lines += [f"tls = {{ ca = {_quoted(str(Path(tls['ca']).absolute()))} }}"]
    if options["roots"]:
        lines += [f"roots = [{', '.join(map(_quoted, options['roots']))}]"]
    if "proxy" in options:
        lines += ['proxy = "${HTTPS_PROXY}"         # as given to `instep init`']
    return lines


def _text(survey: Survey, name: str, store: str, source: list[str]) -> str:
    lines = [
        "#:schema ./instep.schema.json",
        "# For editors that complete keys of TOML: instep config --schema > instep.schema.json",
        "# Every key: instep config --keys. Check this file: instep check.",
        "",
        "[[consumers]]",
        f"name = {_quoted(name)}           # positions are stored under it: keep it",
        "",
        "[consumers.source]",
        'kind = "tapi"',
        *source,
        "# What the provider offers, as of now:",
        *_streams(survey),
        '# Only some of them: streams = { classes = ["CONDITION_DETECTOR"] }, or ids = ["…"].',
        "",
        "[consumers.sink]",
        'kind = "sql"',
        f"url = {msgspec.json.encode(store).decode()}",
        '# A server: url = "postgresql://user@host/database" (pip install "instep[postgres]").',
        '# journal = "changes"        # for `instep changes`: what happened, entity by entity',
        "# references = true          # where each entity stands, and what it refers to",
        "",
        "[consumers.settings]",
        "# alignment = { sweep_guard_share = 0.5 }  # a sweep of more than this share is held",
    ]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _streams(survey: Survey) -> list[str]:
    """Each stream as comments: what it carries, how it keeps it, and whether it is followed."""
    lines = []
    for choice in survey.choices:
        followed = "followed" if choice.chosen else f"not followed: {choice.reason}"
        lines += [f"#   {_comment(choice.id)}: {_comment(followed)}"]
        type_ = choice.stream.type
        if type_ is None:
            continue
        classes = ", ".join(map(_comment, type_.classes)) or "every class"
        lines += _wrapped(classes)
        kept = f"{_comment(type_.storage_strategy)}, {_comment(type_.record_strategy)}"
        if type_.tombstone_retention_s is not None:
            kept += f"; tombstones are kept for {duration(type_.tombstone_retention_s)}"
        lines += _wrapped(kept)
    return lines


def _wrapped(text: str) -> list[str]:
    import textwrap

    return textwrap.wrap(
        text, _WIDTH, initial_indent="#     ", subsequent_indent="#     ", break_on_hyphens=False
    )


def _comment(text: str) -> str:
    """Text of a stranger within a comment: on one line, and not long."""
    return plain(text)[:200]


def _quoted(text: str) -> str:
    """A text of TOML that is read back as the same: `$` would begin a variable."""
    return msgspec.json.encode(text.replace("$", "$$")).decode()
