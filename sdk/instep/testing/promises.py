"""The parts of a contract check: named promises, each checked by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

__all__ = ["BrokenPromiseError", "Contract", "require"]

S = TypeVar("S")
Check = Callable[[S], Awaitable[None]]

_LIMIT_S: Final = 60.0


class BrokenPromiseError(AssertionError):
    """A plug-in does not keep a promise of its port.

    `promise` is the promise's name, `where` the place where it is written, `found` what was seen.
    """

    def __init__(self, promise: str, text: str, where: str, found: str) -> None:
        super().__init__(f"{promise}: {text} ({where}) — {found}")
        self.promise = promise
        self.where = where
        self.found = found


class _NotKeptError(Exception):
    """The error that `require` raises; the contract adds the name of the promise."""


def require(kept: bool, found: str) -> None:  # noqa: FBT001 - reads as an assertion
    """Fail the check unless `kept`; `found` describes what was seen instead."""
    if not kept:
        raise _NotKeptError(found)


class Contract(Generic[S]):
    """The promises of a port: the text of each, where it is written, and its check."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._promises: dict[str, tuple[str, str, Check[S]]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the promises, in the order in which they are checked."""
        return tuple(self._promises)

    def promise(self, text: str, rule: str = "") -> Callable[[Check[S]], Check[S]]:
        """Register a check. The function's name names the promise; `rule` is a tag such as A1."""
        where = f"{self._where}, rule {rule}" if rule else self._where

        def register(check: Check[S]) -> Check[S]:
            name = getattr(check, "__name__", "").strip("_").replace("_", "-")
            self._promises[name] = (text, where, check)
            return check

        return register

    async def check(
        self,
        subject: Callable[[str], S],
        only: str | None,
        *,
        passes_over: type[Exception] | tuple[()] = (),
    ) -> None:
        """Check all promises, or `only` this one, each with a subject of its own. A check that
        raises `passes_over` is about something that the subject does not have: it is left out, and
        the error raised where it is the `only` one.

        Raises `BrokenPromiseError` for the first that is not kept, `ValueError` where no promise
        is named `only`.
        """
        if only is not None and only not in self._promises:
            raise ValueError(f"no promise is named {only!r}; there are {', '.join(self.names)}")
        for name in self.names if only is None else (only,):
            text, where, check = self._promises[name]
            try:
                async with asyncio.timeout(_LIMIT_S):
                    await check(subject(name))
            except passes_over:
                if only is not None:
                    raise
            except _NotKeptError as broken:
                raise BrokenPromiseError(name, text, where, str(broken)) from None
            except TimeoutError as error:
                found = f"no answer within {_LIMIT_S:g} s"
                raise BrokenPromiseError(name, text, where, found) from error
            except Exception as error:
                found = f"{type(error).__name__}: {error}"
                raise BrokenPromiseError(name, text, where, found) from error
