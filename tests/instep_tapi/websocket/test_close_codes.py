"""What a handshake's status and a close code mean."""

from __future__ import annotations

import pytest

from instep.errors import (
    AuthenticationError,
    SourceError,
    StreamGoneError,
    TokenRefusedError,
    UnreachableError,
)
from instep_tapi.websocket.close_codes import closed_error, handshake_error


@pytest.mark.parametrize(
    ("status", "with_token", "expected", "retriable"),
    [
        (400, True, TokenRefusedError, True),
        (410, True, TokenRefusedError, True),
        (416, True, TokenRefusedError, True),
        (410, False, UnreachableError, False),
        (404, True, StreamGoneError, True),
        (403, True, AuthenticationError, False),
        (429, False, UnreachableError, True),
        (503, True, UnreachableError, True),
        (200, True, UnreachableError, False),
    ],
)
def test_handshakes(
    status: int, with_token: bool, expected: type[SourceError], retriable: bool
) -> None:
    error = handshake_error(status, "ws://h", with_token=with_token)
    assert type(error) is expected
    assert error.retriable is retriable
    assert str(status) in str(error)


@pytest.mark.parametrize(
    ("code", "reason", "with_token", "expected"),
    [
        (1008, "token is not valid", True, TokenRefusedError),
        (1008, "start_from unknown", True, TokenRefusedError),
        (4410, "", True, TokenRefusedError),
        (4410, "", False, UnreachableError),
        (1008, "access token expired", True, UnreachableError),
        (1008, "token", False, UnreachableError),
        (4404, "", True, StreamGoneError),
        (1001, "going away", True, UnreachableError),
        (1009, "your frame is too big", True, UnreachableError),
        (1006, "", True, UnreachableError),
        (None, "", False, UnreachableError),
    ],
)
def test_closings(
    code: int | None, reason: str, with_token: bool, expected: type[SourceError]
) -> None:
    assert type(closed_error(code, reason, "ws://h", with_token=with_token)) is expected


def test_a_long_reason_is_cut() -> None:
    assert len(str(closed_error(1000, "x" * 10_000, "ws://h", with_token=False))) < 300
