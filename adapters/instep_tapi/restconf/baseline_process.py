"""States large answers in a process of their own, so that the event loop goes on.

Between both processes, the request and the pages of records are msgpack.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Final

import msgspec

from instep.runtime.child_process import (
    ChildLostError,
    can_start_child,
    messages_of_child,
    serve_as_child,
)
from instep_tapi.restconf.baseline_rows import (
    BaselinePage,
    BaselineScope,
    UnreadableAnswer,
    pages_of,
)

__all__ = ["main", "stated_pages"]

_INLINE_BYTES: Final = 1 << 20
"""Largest answer that is stated in the process itself: that takes some tens of milliseconds."""


class _Request(msgspec.Struct, frozen=True):
    wanted: BaselineScope
    seen: set[tuple[str, str]]


class _Failure(msgspec.Struct, frozen=True, tag=True):
    text: str
    retriable: bool


_encode: Final = msgspec.msgpack.Encoder().encode
_request: Final = msgspec.msgpack.Decoder(_Request)
_answer: Final = msgspec.msgpack.Decoder(BaselinePage | _Failure)


async def stated_pages(
    body: bytes, wanted: BaselineScope, seen: set[tuple[str, str]]
) -> AsyncGenerator[BaselinePage, None]:
    """Pages of records of an answer; what they state is added to `seen`.

    Raises `UnreadableAnswer`.
    """
    if len(body) <= _INLINE_BYTES:
        for page in pages_of(body, wanted, seen):
            yield page
    elif not can_start_child():
        for page in await asyncio.to_thread(lambda: list(pages_of(body, wanted, seen))):
            yield page
    else:
        request = _encode(_Request(wanted, seen))
        try:
            async with aclosing(messages_of_child(__name__, request, body)) as messages:
                async for message in messages:
                    page = _answer.decode(message)
                    if isinstance(page, _Failure):
                        raise UnreadableAnswer(page.text, retriable=page.retriable)
                    seen.update((record.entity_class, record.uuid) for record in page.records)
                    yield page
        except ChildLostError as error:
            raise UnreadableAnswer(str(error), retriable=True) from error


def main() -> None:
    """The child: state one answer."""
    serve_as_child(_messages)


def _messages(request: bytes, body: bytes) -> Iterator[bytes]:
    asked = _request.decode(request)
    try:
        for page in pages_of(body, asked.wanted, asked.seen):
            yield _encode(page)
    except UnreadableAnswer as error:
        yield _encode(_Failure(str(error), error.retriable))
