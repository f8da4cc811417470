"""What the loggers of a command print to stderr: no text of a stranger forges a line."""

from __future__ import annotations

import logging
from contextvars import ContextVar
from typing import Final

import typer

from instep.cli.output import Format, json_bytes, plain, stamp

__all__ = ["OUTPUT", "LogLines", "line_of", "log_to_stderr", "say"]

OUTPUT: Final[ContextVar[Format]] = ContextVar("OUTPUT", default=Format.TABLE)
"""How the command prints: its errors on stderr, too."""


class LogLines(logging.Formatter):
    """A record for people, or as one JSON object; a traceback is part of the record."""

    def __init__(self, output: Format) -> None:
        super().__init__()
        self._output = output

    def format(self, record: logging.LogRecord) -> str:
        if self._output is Format.TABLE:
            lines = super().format(record).split("\n")
            return f"{record.levelname.lower()}: " + "\n  ".join(map(plain, lines))
        line = {
            "at": stamp(int(record.created * 1_000_000)),
            "log": record.levelname.lower(),
            "logger": record.name,
            "text": super().format(record),
        }
        return json_bytes(line).decode()


def log_to_stderr(output: Format) -> None:
    """Print warnings and errors to stderr, unless this program has configured logging itself."""
    OUTPUT.set(output)
    root = logging.getLogger()
    ours = [one for one in root.handlers if isinstance(one.formatter, LogLines)]
    if root.handlers and not ours:
        return
    handler = ours[0] if ours else logging.StreamHandler()
    handler.setFormatter(LogLines(output))
    if not ours:
        root.addHandler(handler)


def line_of(text: str, *, logger: str, level: int = logging.WARNING) -> str:
    """The line that `logger` would print of this text."""
    record = logging.LogRecord(logger, level, "", 0, text, None, None)
    return LogLines(OUTPUT.get()).format(record)


def say(text: str, *, logger: str, level: int = logging.INFO) -> None:
    """Print a line to stderr as `logger` would, also one that only tells how a command goes on."""
    typer.echo(line_of(text, logger=logger, level=level), err=True)
