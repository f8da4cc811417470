"""The revisions of its modules that a provider states (RFC 8525, RFC 7895)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from yarl import URL

from instep.errors import SourceError
from instep_tapi.restconf.client import RestconfClient
from instep_tapi.restconf.json_bounds import decode_members

__all__ = ["module_revision"]

_MAX_BYTES: Final = 4 * 1024 * 1024
_ADDRESSES: Final = ("ietf-yang-library:yang-library", "ietf-yang-library:modules-state")
_MODULE: Final[dict[str, Any]] = {"module": {}}
_IN_LIBRARY: Final[dict[str, Any]] = {"module-set": _MODULE, **_MODULE}
_MEMBERS: Final = {"yang-library": _IN_LIBRARY, "modules-state": _IN_LIBRARY}
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}").fullmatch


async def module_revision(rest: RestconfClient, data: URL, module: str) -> str:
    """The newest revision of a module that is stated below `data`, such as 2020-06-16; empty where
    none is.
    """
    for address in _ADDRESSES:
        try:
            answer = await rest.get(data / address, limit_bytes=_MAX_BYTES)
            if not answer.found:
                continue
            document = await decode_members(answer.body, _MEMBERS)
        except (SourceError, ValueError):
            return ""
        if found := sorted(_revisions(document, module)):
            return found[-1]
    return ""


def _revisions(value: Any, module: str) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _revisions(item, module)
    elif isinstance(value, dict):
        revision = value.get("revision")
        if value.get("name") == module and isinstance(revision, str) and _DATE(revision):
            yield revision
        for inner in value.values():
            if isinstance(inner, (dict, list)):
                yield from _revisions(inner, module)
