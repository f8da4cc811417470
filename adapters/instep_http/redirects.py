"""Which redirects a client follows; each hop is decided here, never by the HTTP library."""

from __future__ import annotations

from contextlib import suppress
from typing import Final, Protocol

import msgspec
from yarl import URL

from instep.errors import UnreachableError
from instep_http.urls import shown

__all__ = ["NO_REDIRECTS", "SAME_ORIGIN", "KeepMethod", "RedirectPolicy", "SameOrigin"]

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})


class RedirectPolicy(Protocol):
    """Decides which redirects are followed, hop by hop."""

    @property
    def statuses(self) -> frozenset[int]:
        """The statuses that are followed; a redirect with another status is returned as the
        response.
        """

    @property
    def max_redirects(self) -> int:
        """The most redirects followed in a row."""

    def target(self, url: URL, status: int, location: str) -> URL:
        """The next URL of the request. Raises `UnreachableError`, not retriable, if it is not
        allowed.
        """


class SameOrigin(msgspec.Struct, frozen=True):
    """Follows redirects within one origin, so that a login is sent to no other origin."""

    max_redirects: int = 5
    statuses: frozenset[int] = _REDIRECTS

    def target(self, url: URL, status: int, location: str) -> URL:  # noqa: ARG002
        target, origin = _join(url, location)
        if origin is None or origin != url.origin():
            raise _refusal(
                url,
                f"redirects to {origin or 'no URL'}: our login is not taken there",
                "if that address is the right one, make it an endpoint",
            )
        return target


class KeepMethod(msgspec.Struct, frozen=True):
    """Follows redirects that keep method and body (307), never from https to http."""

    other_origin: bool
    """Whether a redirect to another origin is followed: only an encrypted message may go there."""
    query: bool = True
    """Whether the query of the target is kept; without it, a peer cannot choose the request."""
    max_redirects: int = 3
    statuses: frozenset[int] = frozenset({307})

    def target(self, url: URL, status: int, location: str) -> URL:  # noqa: ARG002
        target, origin = _join(url, location)
        if origin is None:
            raise _refusal(url, "redirects to no URL")
        if target.scheme not in {"http", "https"} or url.scheme == "https" != target.scheme:
            raise _refusal(url, "redirects from https to a less protected URL")
        if not self.other_origin and origin != url.origin():
            raise _refusal(url, "redirects to another host, and the message is not encrypted")
        return target if self.query else target.with_query(None)


SAME_ORIGIN: Final = SameOrigin()
NO_REDIRECTS: Final = SameOrigin(max_redirects=0, statuses=frozenset())
"""Follows no redirect: a redirect is returned as the response."""


def _join(url: URL, location: str) -> tuple[URL, URL | None]:
    """The target and its origin; None if the target has no origin."""
    target, origin = url, None
    with suppress(ValueError):
        target = url.join(URL(location))
        origin = target.origin()
    return target, origin


def _refusal(url: URL, message: str, hint: str = "") -> UnreachableError:
    return UnreachableError(
        message, where=shown(url), hint=hint, retriable=False, retriable_after_success=True
    )
