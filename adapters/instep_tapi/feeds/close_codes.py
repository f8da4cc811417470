"""Turns handshake statuses and close codes into errors (TR-548 5.8). Pure."""

from __future__ import annotations

import re

from instep.errors import (
    AuthenticationError,
    FrameTooBigError,
    SourceError,
    StreamGoneError,
    TokenRefusedError,
    UnreachableError,
)
from instep.model.streams import Start

__all__ = ["closed_error", "frame_too_big", "handshake_error"]

_ABNORMAL = 1006
_START_REFUSED = {400, 410, 416, 422}
_FORBIDDEN = 403
_NOT_ABOUT_START = {401, 408, 409, 425, 429, 502, 503, 504}
"""They say nothing of where a stream is opened: they pass, or are about the login."""
# Going away, service restart: what a provider says that stops (RFC 6455 7.4.1, its registry).
_RESTARTS = {1001, 1012}
_GONE = 404
# Close codes 4000 to 4999 are the application's; many put an HTTP status there.
_APPLICATION_CODES = 4000
_LOGIN = re.compile(r"\b(access|auth\w*|bearer|login|session|unauthori[sz]ed)\b", re.IGNORECASE)
_START = re.compile(r"\b(token|start[_-]from|offset)\b", re.IGNORECASE)
_MAX_REASON = 123  # what a close frame can hold


def handshake_error(status: int, where: str, start: str | Start) -> SourceError:
    """The error for an answer other than 101 to an opening at `start`. The login handles 401
    itself.
    """
    if _refuses_start(status, start):
        return TokenRefusedError(f"{_refusal(start)}: {status}", where=where, status=status)
    if status == _GONE:
        return StreamGoneError(
            "there is no such stream any more: 404",
            where=where,
            status=status,
            suggests_restart=True,
        )
    if status == _FORBIDDEN:
        return AuthenticationError(
            "the stream is forbidden: 403",
            where=where,
            hint="check what this user may do",
            retriable_after_success=True,
            stream_only=True,
            status=status,
        )
    return UnreachableError(
        f"the opening of the stream is answered with {status}",
        where=where,
        retriable=status >= 500 or status in {408, 409, 429},
        retriable_after_success=True,
        suggests_restart=status >= 500,
        status=status,
    )


def frame_too_big(limit_bytes: int, where: str) -> FrameTooBigError:
    """The error for a message over the limit."""
    return FrameTooBigError(
        f"a frame of more than {limit_bytes} bytes",
        where=where,
        hint="raise max_frame_bytes if such frames are meant",
        limit_bytes=limit_bytes,
    )


def closed_error(code: int | None, reason: str, where: str, start: str | Start) -> SourceError:
    """The error for a connection, opened at `start`, that the provider closed."""
    reason = reason[:_MAX_REASON]
    close_text = f"{code} ({reason})" if reason else f"{code}"
    status = (code or 0) - _APPLICATION_CODES
    about_start = _START.search(reason) and not _LOGIN.search(reason)
    if _refuses_start(status, start) or (about_start and start is not Start.OLDEST):
        return TokenRefusedError(f"{_refusal(start)}: {close_text}", where=where, code=code)
    if status == _GONE:
        return StreamGoneError(
            f"the stream is gone: {close_text}", where=where, suggests_restart=True
        )
    if code in {None, _ABNORMAL}:
        return UnreachableError("the connection is lost", where=where)
    return UnreachableError(
        f"the provider closes the connection: {close_text}",
        where=where,
        suggests_restart=code in _RESTARTS,
    )


def _refuses_start(status: int, start: str | Start) -> bool:
    """Whether a status means that the stream cannot be opened there. A provider that does not know
    `latest` (TR-548 5.10.1) may say so by any: then the oldest record is tried, and what is wrong
    with the stream itself is answered again.
    """
    if start is Start.LATEST:
        return status >= 400 and status not in _NOT_ABOUT_START
    return start is not Start.OLDEST and status in _START_REFUSED


def _refusal(start: str | Start) -> str:
    if start is Start.LATEST:
        return "the provider refuses to start from the latest record"
    return "the provider refuses to resume from our token"
