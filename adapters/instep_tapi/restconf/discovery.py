"""Finds the stream context of a provider by trying the roots and addresses of the field
(ST-0.2).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

import msgspec
from yarl import URL

from instep.errors import DiscoveryError
from instep_tapi.restconf.client import Response, RestconfClient, error_text
from instep_tapi.restconf.json_bounds import SMALL_BYTES, decode_bounded, decode_members
from instep_tapi.wire.stream_context import MEMBERS, StreamContext, parse_context

__all__ = ["MAX_STREAMS_BYTES", "ContextAddress", "find_context"]

MAX_STREAMS_BYTES: Final = 16 * 1024 * 1024
"""Largest answer that shows streams, or the state of one: a thousand of them have 2 MB."""


FIELD_ROOTS = ("/restconf", "/tapi", "", "/rests")
"""RESTCONF roots of known controllers."""


CONTEXTS = ("tapi-common:context", "context")


_STREAM_CONTEXTS = {
    "tapi-common:context": "tapi-streaming:stream-context",
    "context": "stream-context",
}


class ContextAddress(msgspec.Struct, frozen=True):
    """Where a provider's context answered."""

    endpoint: str
    context: str
    """URL of the TAPI context."""
    streams: str
    """URL that shows the stream context, or the whole context where nothing less does."""

    def resource(self, name: str) -> URL:
        """Where the context has a resource, by its name with the module: without it where the
        provider's paths have none.
        """
        context = URL(self.context)
        return context / (name if ":" in context.name else name.partition(":")[2])


async def find_context(
    rest: RestconfClient, endpoint: URL, roots: Iterable[str] = ()
) -> tuple[ContextAddress, StreamContext]:
    """Look for the stream context under every known root. Raises `SourceError`."""
    stated = await rest.host_meta(endpoint)
    tried: dict[str, str] = {}
    candidates = dict.fromkeys(([] if stated is None else [stated]) + [*roots, *FIELD_ROOTS])
    for root in candidates:
        data = endpoint.with_path(endpoint.path.rstrip("/") + root.rstrip("/") + "/data")
        for context, path in _addresses(data):
            # A context may be large, and be the only place that shows the streams.
            whole = path == context
            answer = await rest.get(path, limit_bytes=0 if whole else MAX_STREAMS_BYTES)
            if answer.found:
                try:
                    found = await _read_context(answer.body)
                except ValueError as error:
                    tried[str(path)] = f"no JSON: {error}"
                    continue
                if found is not None:
                    return ContextAddress(str(endpoint), str(context), str(path)), found
                tried[str(path)] = "no stream-context in it"
                continue
            if answer.status not in {404, 400, 405}:
                raise _refused(answer)
            tried[str(path)] = str(answer.status)
    summary = ", ".join(dict.fromkeys(tried.values()))
    raise DiscoveryError(
        f"no stream-context found under {len(tried)} addresses ({summary})",
        where=str(endpoint),
        hint="does this provider stream (TR-548 ST-0.2)? set roots if its RESTCONF root is unusual",
        tried=tried,
    )


async def _read_context(body: bytes) -> StreamContext | None:
    if len(body) <= SMALL_BYTES:
        return _read_small_context(body)
    return parse_context(await decode_members(body, MEMBERS))


# Providers are asked every minute, and seldom answer anything new.
@lru_cache(maxsize=256)
def _read_small_context(body: bytes) -> StreamContext | None:
    return parse_context(decode_bounded(body, MEMBERS))


def _addresses(data: URL) -> Iterable[tuple[URL, URL]]:
    """The context and where to ask for its streams: the container, then the whole context."""
    for context in CONTEXTS:
        container = data / context / _STREAM_CONTEXTS[context]
        yield data / context, container
        yield data / context, container / ""
    for context in CONTEXTS:
        yield data / context, data / context


def _refused(answer: Response) -> DiscoveryError:
    error_message = error_text(answer.body)
    return DiscoveryError(
        f"the stream context is answered with {answer.status}"
        + (f": {error_message}" if error_message else ""),
        where=answer.url,
        hint="give this user the right to read it" if answer.status == 403 else "",
        retriable=answer.status == 429 or answer.status >= 500,
        retriable_after_success=True,
        suggests_restart=answer.status >= 500,
        status=answer.status,
    )
