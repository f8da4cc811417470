"""`instep reload`: lets a running `instep run` read its configuration again."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.request
from pathlib import Path
from typing import Any, Final

import typer

from instep.cli.output import Format, FormatOption, json_line, plain
from instep.cli.store import ConfigArgument
from instep.config.file import default_path, load
from instep.config.plugins import check
from instep.errors import ConfigurationError, InstepError
from instep.model.listen import listen_url

__all__ = ["reload"]

_WITHIN_S: Final = 30.0
_LOOK_EVERY_S: Final = 0.1


class ReloadError(InstepError):
    """A running process cannot be asked to read its configuration again, or has refused it."""

    code = "reload"


def reload(config: ConfigArgument = None, output: FormatOption = Format.TABLE) -> None:
    """Let a running process read its configuration again, and show the result.

    It checks the file first, and sends nothing if the file is wrong. It finds the process by its
    port (`[operations] listen`). Without a port, send SIGHUP yourself (`systemctl reload`).

    Example: instep reload /etc/instep/instep.toml
    """
    path = config or default_path()
    configuration = load(path)
    for one in configuration.consumers:
        check(one)
    listen, where = configuration.operations.listen, f"{path}: operations.listen"
    if not listen:
        raise ConfigurationError(
            "`instep reload` finds the process by its port of operations, and the file has none",
            where=where,
            hint="send SIGHUP to the process instead: kill -HUP, systemctl reload",
        )
    url = f"{listen_url(listen, where)}/status.json"
    before = _status(url)
    pid = int(before["pid"])
    if not _is_ours(pid):
        raise ReloadError(f"process {pid} is not an `instep run` of this user", where=url)
    os.kill(pid, signal.SIGHUP)
    until_s = time.monotonic() + _WITHIN_S
    while (told := _status(url)["reload"]) == before["reload"]:
        if time.monotonic() > until_s:
            raise ReloadError(f"process {pid} has not answered for {_WITHIN_S:.0f} s", where=url)
        time.sleep(_LOOK_EVERY_S)
    if not told["reloaded"]:
        raise ReloadError(str(told["text"]), where=url)
    if output is Format.JSONL:
        json_line({"pid": pid, "text": str(told["text"])})
    else:
        typer.echo(plain(str(told["text"])))


def _status(url: str) -> dict[str, Any]:
    try:
        with urllib.request.urlopen(url, timeout=_WITHIN_S) as answer:  # noqa: S310 - ours
            found: dict[str, Any] = json.loads(answer.read())
    except (OSError, ValueError) as error:
        raise ReloadError(
            f"no process answers: {error}",
            where=url,
            hint="start `instep run` on this machine, or look at `listen` under [operations]",
        ) from error
    return found


def _is_ours(pid: int) -> bool:
    """Whether a process is an instep of this user, as far as the system tells."""
    folder = Path("/proc") / str(pid)
    if not Path("/proc/self").exists():
        return True
    try:
        return (
            folder.stat().st_uid == os.geteuid() and b"instep" in (folder / "cmdline").read_bytes()
        )
    except OSError:
        return False
