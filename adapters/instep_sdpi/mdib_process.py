"""Reads large MDIBs in a process of their own, so that the event loop goes on.

Between both processes, the request and the pages of entities are msgpack.
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
from instep_sdpi.wire.mdib import MdibPage, MdibRequest, read_pages
from instep_soap import SoapFaultError, XmlError, XmlLimits, fault_of, read_envelope

__all__ = ["main", "stated_pages"]

_INLINE_BYTES: Final = 1 << 20
"""Largest response that is read in the process itself: that takes some tens of milliseconds."""


class _Request(msgspec.Struct, frozen=True):
    request: MdibRequest
    limits: XmlLimits


class _Page(MdibPage, frozen=True, tag="page"):
    """A page, as the child writes it."""


class _Failure(msgspec.Struct, frozen=True, tag="failure"):
    text: str


_encode: Final = msgspec.msgpack.Encoder().encode
_request: Final = msgspec.msgpack.Decoder(_Request)
_answer: Final = msgspec.msgpack.Decoder(_Page | _Failure)


async def stated_pages(
    raw: bytes, request: MdibRequest, limits: XmlLimits
) -> AsyncGenerator[MdibPage, None]:
    """The pages of a response that was successful. Raises `XmlError`: it is none that was asked
    for, or a fault.
    """
    if len(raw) <= _INLINE_BYTES:
        for page in _read(raw, request, limits):
            yield page
            await asyncio.sleep(0)
    elif not can_start_child():
        for page in await asyncio.to_thread(lambda: list(_read(raw, request, limits))):
            yield page
    else:
        asked = _encode(_Request(request, limits))
        try:
            async with aclosing(messages_of_child(__name__, asked, raw)) as messages:
                async for message in messages:
                    page = _answer.decode(message)
                    if isinstance(page, _Failure):
                        raise XmlError(page.text)
                    yield page
        except ChildLostError as error:
            raise XmlError(str(error)) from error


def main() -> None:
    """The child: read one response."""
    serve_as_child(_messages)


def _messages(request: bytes, raw: bytes) -> Iterator[bytes]:
    asked = _request.decode(request)
    try:
        for page in _read(raw, asked.request, asked.limits):
            yield _encode(_Page(page.version, page.entities, page.unreadable))
    except XmlError as error:
        yield _encode(_Failure(error.message))


def _read(raw: bytes, request: MdibRequest, limits: XmlLimits) -> Iterator[MdibPage]:
    try:
        envelope = read_envelope(raw, limits)
    except SoapFaultError as error:
        raise XmlError(f"the response is no envelope: {error.message}") from None
    fault = fault_of(envelope)
    if fault is not None:
        reason = fault.message or fault.subcode or str(fault.fault_code)
        raise XmlError(f"the provider refuses {request}: {reason}")
    yield from read_pages(envelope, request)
