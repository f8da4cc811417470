"""Connections that do not wait for ever: a proxy, a pooler or a server that hangs goes on to
acknowledge TCP, so no option of TCP finds it. Without SQLAlchemy, whose import `instep status`
spares.
"""

from __future__ import annotations

from collections.abc import Generator
from math import inf
from time import monotonic
from typing import Any, Final

import psycopg
from psycopg.abc import RV, PQGen

__all__ = ["MARGIN_S", "AnswerTimeoutError", "TimedConnection"]

MARGIN_S: Final = 5.0
"""Seconds after which the server's word of its own `statement_timeout` is there, or nobody answers.
"""
_LOOK_EVERY_S: Final = 0.1
_SOON_S: Final = 0.1


class AnswerTimeoutError(psycopg.OperationalError):
    """The server was asked, and has not answered: the connection is closed."""


class TimedConnection(psycopg.Connection[Any]):
    """A connection that is closed when the server is silent for too long while it is waited for.

    What takes bytes, or gives some, is not silent: a large statement may take its time. How long
    the server may work on one is its own to say, by `statement_timeout`; this limit is above that.
    A COMMIT is not under it (it may wait for a standby): one that is given up has an outcome that
    is unknown, as with any lost connection.
    """

    statement_timeout_s = inf
    """That of the server, in seconds."""

    def wait(
        self, gen: PQGen[RV], interval: float = _LOOK_EVERY_S, timeout: float | None = None
    ) -> RV:
        """See psycopg. Raises `AnswerTimeoutError`, unless `timeout` is given."""
        if timeout is not None:
            return super().wait(gen, interval, timeout)
        try:
            # Nearly all answers come soon: then nothing of Python's is between.
            return super().wait(gen, interval, _SOON_S)
        except psycopg.errors._WaitTimeout:  # noqa: SLF001 — that its documentation names
            return super().wait(self._timed(gen), interval)

    def _timed(self, gen: PQGen[RV]) -> Generator[Any, Any, RV]:
        limit_s = self.statement_timeout_s + MARGIN_S
        try:
            wanted = next(gen)
            heard_s = monotonic()
            while True:
                # The driver comes back each `_LOOK_EVERY_S`, also where nothing is ready.
                ready = yield wanted
                if ready:
                    heard_s = monotonic()
                elif monotonic() - heard_s > limit_s:
                    self.close()
                    raise AnswerTimeoutError(
                        f"no answer for {limit_s:g} s, so the connection was given up"
                    )
                wanted = gen.send(ready)
        except StopIteration as end:
            result: RV = end.value
            return result
