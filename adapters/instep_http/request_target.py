"""The request target: which path of which host a request means, and whether it is served.

RFC 9112 3.2 has four forms. In absolute-form the authority of the target counts, and Host is
ignored (3.2.2). Asterisk-form and authority-form mean no resource of ours.

A path is compared as RFC 3986 6.2.2 equates them: ``%6e`` is ``n``, and ``%2f`` is ``%2F``, but
not ``/``. Everything else is another path: ``//in``, ``/in/``, ``/./in``. A query selects nothing
here, and is ignored.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

import msgspec
from yarl import URL

__all__ = ["RequestTarget", "ServedPaths", "read_target"]

_FORM: Final = re.compile(r"(?:https?://([^/?#]*))?((?:/[^?#]*)?)(?:\?[^#]*)?", re.IGNORECASE)
_TARGETS_KEPT: Final = 256
_UNRESERVED: Final = frozenset(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
)
_TRIPLET_OR_OTHER: Final = re.compile(rb"%[0-9A-Fa-f]{2}|[^!-~]")


class RequestTarget(msgspec.Struct, frozen=True):
    """A target in origin-form or absolute-form."""

    path: str
    """Its path, normalized."""
    authority: str | None
    """Its host and port, which count instead of Host; None: origin-form."""


@lru_cache(maxsize=_TARGETS_KEPT)  # a sender repeats its own
def read_target(raw: str) -> RequestTarget | None:
    """Read a target as it came; None: it is in another form, or of another scheme."""
    found = _FORM.fullmatch(raw)
    if found is None:
        return None
    authority, path = found.groups()
    if authority is None and not path:
        return None
    return RequestTarget(_normal(path or "/"), authority)


class ServedPaths:
    """The paths that a server serves.

    Args:
        listen: The URL that it listens on.
        below: Whether all paths below it are served too.
    """

    def __init__(self, listen: URL, *, below: bool = False) -> None:
        self._path = _normal(listen.raw_path)
        self._below = f"{self._path.rstrip('/')}/" if below else None

    def serves(self, path: str) -> bool:
        """Whether a normalized path is served."""
        return path == self._path or (self._below is not None and path.startswith(self._below))


def _normal(path: str) -> str:
    if path.isascii() and path.isprintable() and "%" not in path and " " not in path:
        return path
    raw = path.encode("utf-8", "surrogateescape")
    return _TRIPLET_OR_OTHER.sub(_normal_octet, raw).decode("ascii")


def _normal_octet(found: re.Match[bytes]) -> bytes:
    text = found.group()
    octet = int(text[1:], 16) if len(text) == 3 else text[0]
    return bytes((octet,)) if octet in _UNRESERVED else b"%%%02X" % octet
