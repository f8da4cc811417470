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
from instep.model.streams import Start
from instep_tapi.feeds.close_codes import closed_error, handshake_error


@pytest.mark.parametrize(
    ("status", "start", "expected", "retriable"),
    [
        (400, "t", TokenRefusedError, True),
        (410, "t", TokenRefusedError, True),
        (416, "t", TokenRefusedError, True),
        (400, Start.LATEST, TokenRefusedError, True),
        (422, Start.LATEST, TokenRefusedError, True),
        (404, Start.LATEST, TokenRefusedError, True),
        (405, Start.LATEST, TokenRefusedError, True),
        (500, Start.LATEST, TokenRefusedError, True),
        (501, Start.LATEST, TokenRefusedError, True),
        (503, Start.LATEST, UnreachableError, True),
        (429, Start.LATEST, UnreachableError, True),
        (410, Start.OLDEST, UnreachableError, False),
        (404, "t", StreamGoneError, True),
        (403, "t", AuthenticationError, False),
        (429, Start.OLDEST, UnreachableError, True),
        (503, "t", UnreachableError, True),
        (200, "t", UnreachableError, False),
    ],
)
def test_handshakes(
    status: int, start: str | Start, expected: type[SourceError], retriable: bool
) -> None:
    error = handshake_error(status, "ws://h", start)
    assert type(error) is expected
    assert error.retriable is retriable
    assert str(status) in str(error)


@pytest.mark.parametrize(
    ("error", "suggests"),
    [
        (handshake_error(500, "h", "t"), True),
        (handshake_error(503, "h", "t"), True),
        (handshake_error(404, "h", "t"), True),
        (handshake_error(410, "h", "t"), False),
        (handshake_error(429, "h", "t"), False),
        (closed_error(1001, "", "h", "t"), True),
        (closed_error(1012, "", "h", "t"), True),
        (closed_error(4404, "", "h", "t"), True),
        (closed_error(1000, "", "h", "t"), False),
        (closed_error(None, "", "h", "t"), False),
    ],
)
def test_a2_what_suggests_that_the_provider_was_restarted(
    error: SourceError, suggests: bool
) -> None:
    assert error.suggests_restart is suggests


@pytest.mark.parametrize(
    ("code", "reason", "start", "expected"),
    [
        (1008, "token is not valid", "t", TokenRefusedError),
        (1008, "start_from unknown", "t", TokenRefusedError),
        (4410, "", "t", TokenRefusedError),
        (4400, "", Start.LATEST, TokenRefusedError),
        (1008, "start_from=latest unknown", Start.LATEST, TokenRefusedError),
        (4404, "", Start.LATEST, TokenRefusedError),
        (4501, "", Start.LATEST, TokenRefusedError),
        (4503, "", Start.LATEST, UnreachableError),
        (4410, "", Start.OLDEST, UnreachableError),
        (1008, "access token expired", "t", UnreachableError),
        (1008, "token", Start.OLDEST, UnreachableError),
        (4404, "", "t", StreamGoneError),
        (1001, "going away", "t", UnreachableError),
        (1009, "your frame is too big", "t", UnreachableError),
        (1006, "", "t", UnreachableError),
        (None, "", Start.OLDEST, UnreachableError),
    ],
)
def test_closings(
    code: int | None, reason: str, start: str | Start, expected: type[SourceError]
) -> None:
    assert type(closed_error(code, reason, "ws://h", start)) is expected


@pytest.mark.parametrize(("start", "what"), [("t", "our token"), (Start.LATEST, "latest record")])
def test_what_is_refused_is_named(start: str | Start, what: str) -> None:
    assert what in str(handshake_error(400, "ws://h", start))
    assert what in str(closed_error(4400, "", "ws://h", start))


def test_a_long_reason_is_cut() -> None:
    assert len(str(closed_error(1000, "x" * 10_000, "ws://h", Start.OLDEST))) < 300
