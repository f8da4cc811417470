"""Decodes RESTCONF answers within bounds: a short answer must not take much memory, and a long one
must not stop the event loop.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from instep_tapi.facts.names import strip_module
from instep_tapi.wire.framing import BYTE_ORDER_MARK

__all__ = ["SMALL_BYTES", "decode_bounded", "decode_members"]

_FREE_VALUES: Final = 1_000_000
_BYTES_PER_VALUE: Final = 16
"""Fewest bytes for each further JSON value. Real contexts have some forty, ``[],[],[]`` three."""
_SLICE_BYTES: Final = 1 << 20
"""Largest part that is decoded in one piece: meanwhile no other thread runs."""
_BLANKS: Final = 1 << 10
"""Most blanks before a value that is looked into member by member."""
SMALL_BYTES: Final = 65_536
"""An answer up to here is decoded at once."""
_EVERYTHING: Final[Mapping[str, Any]] = {}
_anything: Final = msgspec.json.Decoder()
_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_items: Final = msgspec.json.Decoder(list[msgspec.Raw])


async def decode_members(body: bytes, path: Mapping[str, Any]) -> Any:
    """Of the JSON of an answer, those members alone that `path` leads to: a name without module
    prefix and what it leads to, empty for all of the member. Raises `ValueError` saying what is
    wrong with it.

    Decoded in a thread, slice by slice: a context of 100 MB must not keep Pongs waiting. A small
    one is decoded sooner than a thread begins.
    """
    if len(body) <= SMALL_BYTES:
        return decode_bounded(body, path)
    return await asyncio.to_thread(decode_bounded, body, path)


def decode_bounded(body: bytes, path: Mapping[str, Any] = _EVERYTHING) -> Any:
    """The same without a thread, for small answers; all of it without `path`. A byte order mark
    before it costs nothing.
    """
    body = body.removeprefix(BYTE_ORDER_MARK)
    most, values = _FREE_VALUES + len(body) // _BYTES_PER_VALUE, 0
    for at in range(0, len(body), _SLICE_BYTES):
        # Each value but the first follows one of these; texts may hold more of them.
        values += sum(body.count(sign, at, at + _SLICE_BYTES) for sign in (b",", b"[", b"{"))
    if values > most:
        raise ValueError(f"more than {most:,} JSON values in {len(body):,} bytes")
    try:
        with _without_collections(len(body)):
            return _chosen(body, path)
    except RecursionError:
        raise ValueError("JSON nested too deeply") from None


def _chosen(part: bytes | msgspec.Raw, path: Mapping[str, Any]) -> Any:
    view = memoryview(part)
    if not path or bytes(view[:_BLANKS]).lstrip()[:1] != b"{":
        return _decoded(part)
    members = ((strip_module(name), name, value) for name, value in _members.decode(view).items())
    return {name: _chosen(value, path[plain]) for plain, name, value in members if plain in path}


def _decoded(part: bytes | msgspec.Raw) -> Any:
    """A large object or list is decoded member by member, so that each step is short."""
    view = memoryview(part)
    if view.nbytes > _SLICE_BYTES:
        match bytes(view[:_SLICE_BYTES]).lstrip()[:1]:
            case b"{":
                return {name: _decoded(value) for name, value in _members.decode(view).items()}
            case b"[":
                return [_decoded(value) for value in _items.decode(view)]
    return _anything.decode(view)


@contextmanager
def _without_collections(size_bytes: int) -> Iterator[None]:
    """No garbage collection while a large document is built: each would look at all of it, with
    every thread waiting.
    """
    if size_bytes <= _SLICE_BYTES or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
