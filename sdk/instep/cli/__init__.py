"""The command line: `instep`. One file a command; plug-ins add theirs (`instep.commands`)."""

import os
import signal
import sys

__all__ = ["main"]

_SERVICES = {"run", "provider"}
"""Commands, also of a group, that run until they are stopped."""


def main() -> None:
    """The entry point of the script `instep`; ends the process with 0, 1 or 2."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    if not _SERVICES.isdisjoint(sys.argv):
        signal.signal(signal.SIGHUP, _hung_up)
    from instep.cli.app import app

    app(prog_name="instep")


def _hung_up(_number: int, _frame: object) -> None:
    """Nothing, until the command answers it (`instep.cli.signals`)."""
    os.write(2, b"instep: SIGHUP is ignored\n")


def _stop(number: int, _frame: object) -> None:
    """End by the signal, as a program that does not handle it. Whoever presses Ctrl-C knows why it
    ends; of another signal it is said.

    Commands that have something to complete replace this (`instep.cli.signals`).
    """
    if number != signal.SIGINT:
        os.write(2, f"instep: stopped by {signal.Signals(number).name}\n".encode())
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
