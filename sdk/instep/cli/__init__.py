"""The command line: `instep`. One file a command; plug-ins add theirs (`instep.commands`)."""

import os
import signal

__all__ = ["main"]


def main() -> None:
    """The entry point of the script `instep`; ends the process with 0, 1 or 2."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    from instep.cli.app import app

    app(prog_name="instep")


def _stop(number: int, _frame: object) -> None:
    """Say why it ends, and end by the signal, as a program that does not handle it.

    Commands that have something to complete replace this (`instep.cli.signals`).
    """
    os.write(2, f"instep: stopped by {signal.Signals(number).name}\n".encode())
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
