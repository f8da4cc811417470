"""How every command ends (`EXIT_CODES`). An error says what is wrong, where, and what to do."""

from __future__ import annotations

import functools
import os
import sys
import time
import traceback
from collections.abc import Callable, Coroutine
from typing import Any, Final, Never

import typer

from instep.cli.debug import DEBUG
from instep.cli.log_lines import OUTPUT, log_to_stderr
from instep.cli.output import Format, json_bytes, plain, plain_lines, stamp
from instep.config.entry_points import install_hint
from instep.config.lines import with_line
from instep.errors import (
    ConfigurationError,
    InstepError,
    NoStoreError,
    UnreadableRecordsError,
)

__all__ = ["EXIT_CODES", "with_exit_code"]

EXIT_CODES: Final = {
    0: "done; or stopped by SIGTERM or SIGINT as asked",
    1: "failed, or the answer is no: a store differs (`audit`), nothing was to release",
    2: "wrong usage or configuration, or what was named is not there: a store, a stream, a class",
    3: "aligned, but records could not be read (`run --until-aligned`)",
}


def with_exit_code(command: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a command: print its errors to stderr, with a traceback only after `instep --debug`. One
    that is a coroutine function is run by asyncio.
    """

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            output = kwargs.get("output")
            log_to_stderr(output if isinstance(output, Format) else Format.TABLE)
            done = command(*args, **kwargs)
            if isinstance(done, Coroutine):
                import asyncio

                done = asyncio.run(done)
            sys.stdout.flush()
        except (typer.Exit, typer.Abort, typer.BadParameter):
            raise
        except BrokenPipeError:
            # The reader of the output has closed it. What is still buffered is dropped, because
            # Python would flush it at its end and complain.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None
        except KeyboardInterrupt:
            raise typer.Exit(1) from None
        except Exception as error:  # noqa: BLE001 - told in a few lines, or whole with --debug
            _print_error(error)
        return done

    return run


def _print_error(error: Exception) -> Never:
    if DEBUG.get():
        typer.echo(plain_lines("".join(traceback.format_exception(error))), err=True, nl=False)
    if hint := install_hint(error):
        error = ConfigurationError(f"a package is missing: {error}", hint=hint)
    match error:
        case InstepError():
            what, where, to_do = error.message, error.where, error.hint
        case OSError():
            what = error.strerror or str(error) or type(error).__name__
            where, to_do = str(error.filename or ""), ""
        case _:
            what, where = f"{type(error).__name__}: {error}", ""
            to_do = "this is a mistake in instep: report what `instep --debug …` prints"
    if isinstance(error, ConfigurationError) and "known" in error.data:
        # Knows every plug-in: imported only where somebody has to wait for an answer anyway.
        from instep.config.misplaced_keys import with_place

        to_do = with_place(error)
    if OUTPUT.get() is Format.JSONL:
        line = {
            "at": stamp(time.time_ns() // 1_000),
            "log": "error",
            "logger": "instep.cli",
            "code": error.code if isinstance(error, InstepError) else "error",
            "text": what,
            "where": where,
            "to_do": to_do,
        }
        typer.echo(json_bytes(line), err=True)
    else:
        lines = [f"error: {what}"]
        if isinstance(error, ConfigurationError):
            where = with_line(where, str(error.data.get("key", "")))
        lines += [f"  where: {where}"] if where else []
        lines += [f"  to do: {to_do}"] if to_do else []
        typer.echo("\n".join(map(plain, lines)), err=True)
    if isinstance(error, UnreadableRecordsError):
        raise typer.Exit(3)
    raise typer.Exit(2 if isinstance(error, (ConfigurationError, NoStoreError)) else 1)
