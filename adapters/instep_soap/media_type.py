"""Reads Content-Type (RFC 9110 8.3, RFC 2045 5.1), of a request and of a part of one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import msgspec

__all__ = ["UNKNOWN", "MediaType", "read_media_type"]

_TOKEN: Final = rb"[^\x00-\x20()<>@,;:\\\"/\[\]?=\x7f]+".decode()
_KEPT: Final = 256
UNKNOWN: Final = "application/octet-stream"
"""It says nothing of what the content is."""
_XML: Final = frozenset({"text/xml", "application/xml", UNKNOWN})
# A value is quoted, or goes on to the next semicolon: senders leave the quotes out where they must
# not, as in `type=application/xop+xml` or `start=<root@x>`.
_PARAMETER: Final = re.compile(
    r"""[;\s]*+(?:([^\s;=]++)\s*+=\s*+(?:"((?:[^"\\]|\\.)*+)"|([^;]*+))|[^;]++)"""
)
_TYPE: Final = re.compile(rf"\s*({_TOKEN}/{_TOKEN})(?=[;\s]|$)")
_ESCAPED: Final = re.compile(r"\\(.)")


class MediaType(msgspec.Struct, frozen=True):
    """A media type."""

    essence: str
    """``type/subtype`` in lower case; empty: it cannot be read."""
    parameters: Mapping[str, str]
    """By their names in lower case; of those with one name, the first."""

    charset: str = ""
    """What `charset` says, in lower case; empty: it is not stated."""
    may_be_xml: bool = False
    """Whether it is one of XML (RFC 7303 3 and 4.2), or says nothing."""

    def get(self, name: str) -> str:
        """The value of a parameter; empty: it is not stated."""
        return self.parameters.get(name, "")


@lru_cache(maxsize=_KEPT)
def read_media_type(stated: str) -> MediaType:
    """The media type that a Content-Type states. Where there is none, it is as if it said nothing
    of what it is (RFC 9110 8.3).
    """
    found = _TYPE.match(stated or UNKNOWN)
    if found is None:
        return MediaType("", {})
    parameters: dict[str, str] = {}
    at = found.end()
    while (one := _PARAMETER.match(stated, at)) is not None:
        at = one.end()
        name, quoted, bare = one.groups()
        if name is not None:
            value = bare.strip() if quoted is None else _ESCAPED.sub(r"\1", quoted)
            parameters.setdefault(name.lower(), value)
    essence = found[1].lower()
    return MediaType(
        essence,
        parameters,
        parameters.get("charset", "").strip("'").lower(),
        essence in _XML or essence.endswith("+xml"),
    )
