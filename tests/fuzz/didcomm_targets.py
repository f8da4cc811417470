"""What a stranger reaches of a DIDComm listener before anything of him is proven."""

from __future__ import annotations

import asyncio
import atexit
from collections.abc import Callable, Coroutine
from functools import cache
from typing import Any, Final, TypeVar

from instep_didcomm.identity.did_documents import DidDocuments
from instep_didcomm.problems import MessageRefusedError
from instep_didcomm.wire.envelope import Form, form_of, media_form, parse_object
from instep_didcomm.wire.headers import digest_of, read_headers
from instep_didcomm.wire.unpack import EnvelopeUnpacker
from instep_http.fast_path import RequestHeadParser
from instep_http.origins import OriginRules
from tests.fuzz.didcomm_seeds import BOB_KEYS, PATH

__all__ = ["DIDCOMM_TARGETS"]

_LIMIT_BYTES: Final = 4 << 20
_T = TypeVar("_T")
_unpacker: Final = EnvelopeUnpacker(BOB_KEYS, DidDocuments())
_documents: Final = DidDocuments()


def envelope(data: bytes) -> None:
    """Any envelope is opened, or refused in our terms; what is opened is a plaintext."""
    unpacked = _unless_refused(lambda: _run(_unpacker.unpack(data)))
    if unpacked is not None:
        assert form_of(unpacked.message) is Form.PLAIN
        assert unpacked.form in Form


def message(data: bytes) -> None:
    """The headers of any plaintext are read within their bounds, or refused."""
    content_type, _, raw = data.partition(b"\n")
    _unless_refused(lambda: media_form(content_type.decode("latin-1")))
    deviations: list[str] = []
    read = _unless_refused(lambda: parse_object(raw))
    headers = _unless_refused(lambda: read_headers(read or {}, deviations.append))
    if read is None or headers is None:
        return
    for name in (headers.id, headers.thid, headers.pthid, headers.sender):
        assert name.isprintable()
        assert len(name) <= 4_096
    assert headers.id
    assert headers.thid
    assert 0 <= headers.sender_order < 2**63
    assert 1 <= headers.sent_count < 2**63
    assert len(digest_of(read)) == 20


def did(data: bytes) -> None:
    """Any DID gives a document, a key of it and an endpoint, or is refused in our terms."""
    name, _, fragment = data.decode(errors="replace").partition("#")
    kid = f"{name}#{fragment}"
    _unless_refused(lambda: _run(_documents.resolve(name)))
    _unless_refused(lambda: _run(_documents.verification_method(kid, "authentication")))
    _unless_refused(lambda: _run(_documents.verification_method(kid, "key_agreement")))
    _unless_refused(lambda: _run(_documents.endpoint(name)))


def http_head(data: bytes) -> None:
    """Any head of a request is one that we serve fast, or one for the general handler."""
    head = data + b"\r\n\r\n"

    async def read() -> Any:
        return _heads().read(head)

    found = _run(read())
    if found is not None:
        assert 0 < found.length_bytes <= _LIMIT_BYTES


def _unless_refused(read: Callable[[], _T]) -> _T | None:
    try:
        return read()
    except MessageRefusedError as error:
        refused = error
    assert refused.message
    assert len(refused.message) < 1_000
    assert str(refused).isprintable()
    return None


@cache
def _heads() -> RequestHeadParser:
    rules = OriginRules("127.0.0.1", frozenset(), frozenset())
    return RequestHeadParser(PATH.__eq__, _LIMIT_BYTES, rules)


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    atexit.register(loop.close)
    return loop


def _run(work: Coroutine[Any, Any, _T]) -> _T:
    return _loop().run_until_complete(work)


DIDCOMM_TARGETS: Final[dict[str, Callable[[bytes], None]]] = {
    "envelope": envelope,
    "message": message,
    "did": did,
    "http_head": http_head,
}
