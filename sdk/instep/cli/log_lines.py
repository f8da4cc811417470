"""What the loggers of a command print to stderr: no text of a stranger forges a line."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Final, TextIO

import typer

from instep.cli.output import Format, json_bytes, plain, stamp
from instep.runtime.sampling import LineSampler

__all__ = [
    "OUTPUT",
    "LogLines",
    "SampledHandler",
    "line_of",
    "log_to_stderr",
    "say",
    "set_log_level",
    "tell_left_out",
]

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


class SampledHandler(logging.StreamHandler[TextIO]):
    """Prints what loggers say to stderr: of each place in the code a few lines, then one in half a
    minute. What one peer causes again and again fills no disk.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now_s = now_s
        self._sampler = LineSampler()

    def emit(self, record: logging.LogRecord) -> None:
        site = (record.pathname, record.lineno)
        traceback = bool(record.exc_info)
        if self._sampler.admits(site, self._now_s(), traceback=traceback):
            super().emit(record)

    def tell_left_out(self) -> None:
        """Print how many lines were left out, of each place."""
        self.acquire()
        try:
            for (path, line), one in self._sampler.left_out(self._now_s()):
                place = f"{Path(path).name}:{line}"
                text = f"{one.count:,} more lines of {place} in the last {one.for_s:.0f} s"
                super().emit(
                    logging.LogRecord("instep.log", logging.WARNING, "", 0, text, None, None)
                )
        finally:
            self.release()


def tell_left_out() -> None:
    """Print how many lines were left out (`SampledHandler`)."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, SampledHandler):
            handler.tell_left_out()


def log_to_stderr(output: Format) -> None:
    """Print warnings and errors to stderr, unless this program has configured logging itself."""
    OUTPUT.set(output)
    root = logging.getLogger()
    ours = [one for one in root.handlers if isinstance(one.formatter, LogLines)]
    if root.handlers and not ours:
        return
    handler = ours[0] if ours else SampledHandler()
    handler.setFormatter(LogLines(output))
    if not ours:
        root.addHandler(handler)


def set_log_level(level: str) -> None:
    """What the loggers of this package print from now on: `debug`, `info`, `warning`, `error`."""
    logging.getLogger("instep").setLevel(level.upper())


def line_of(text: str, *, logger: str, level: int = logging.WARNING) -> str:
    """The line that `logger` would print of this text."""
    record = logging.LogRecord(logger, level, "", 0, text, None, None)
    return LogLines(OUTPUT.get()).format(record)


def say(text: str, *, logger: str, level: int = logging.INFO) -> None:
    """Print a line to stderr as `logger` would, also one that only tells how a command goes on."""
    typer.echo(line_of(text, logger=logger, level=level), err=True)
