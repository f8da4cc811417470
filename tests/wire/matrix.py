"""Which rule fits which kind, and how it is played there: field times are scaled to a second."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from instep.testing import relay as wire
from instep.testing.relay import RULES, Rule
from tests.wire import brokers, listeners, sinks, sources
from tests.wire.maintenance import Maintenance
from tests.wire.outcome import Outcome, Play

__all__ = ["CELLS", "KINDS", "REFUSED_BY_DESIGN", "ROWS"]

Run = Callable[[Play, int, Path], Awaitable[Outcome]]
KINDS: Final[dict[str, Run]] = {
    "tapi-websocket": sources.tapi_websocket,
    "tapi-sse": sources.tapi_sse,
    "tapi-restconf": sources.tapi_restconf,
    "sdpi": sources.sdpi,
    "sdpi-events": sources.sdpi_events,
    "didcomm": listeners.didcomm,
    "wsrm": listeners.wsrm,
    "wsr": listeners.wsr,
    "nats": brokers.nats_jetstream,
    "postgresql": sinks.postgresql,
    "postgresql-messages": sinks.postgresql_messages,
    "delta": sinks.delta,
    "lake": sinks.lake,
}
ROWS: Final[tuple[type[Rule], ...]] = (*RULES, Maintenance)

_NETWORK: Final = (
    Play(lambda: wire.HalfOpen(0.7, most=3)),
    Play(lambda: wire.Reset(0.4)),
    Play(lambda: wire.CutEvery(0.4)),
    Play(lambda: wire.Jitter(0.05), heals=False),
)
"""What any connection goes through."""
_TRICKLE: Final = Play(lambda: wire.OneByte(0.0, share=0.99), heals=False)
"""Some hundred bytes of each piece come alone."""
_IDLE: Final = Play(lambda: wire.IdleTimeout(0.5, most=3))
_SLOW: Final = Play(lambda: wire.SlowAccept(0.4), heals=False)
_DIALLING: Final = (
    _IDLE,
    _SLOW,
    Play(lambda: wire.SwallowedBytes(500, 50, most=5)),
)
"""What only who dials can notice."""
_FRAMING: Final = (
    Play(wire.Chunked, heals=False),
    Play(wire.Recompressed, heals=False),
    Play(wire.HeaderCase, heals=False),
    Play(wire.Http10, heals=False),
    Play(lambda: wire.AnswerLost(most=4)),
)
"""What any HTTP goes through."""
_ANSWERS: Final = (
    Play(lambda: wire.KeepAliveRace(most=4), heals=False),
    Play(lambda: wire.HtmlPage(most=4), from_start=False),
    Play(lambda: wire.GatewayPage(most=4), from_start=False),
    Play(lambda: wire.LoginRedirect(most=4), from_start=False),
    Play(lambda: wire.ServiceUnavailable(1, most=2), from_start=False),
    Play(lambda: wire.TooManyRequests(1, most=2), from_start=False),
    Play(lambda: wire.TruncatedBody(most=4), from_start=False),
    Play(lambda: wire.ErrorMidStream(5, most=4), from_start=False),
)
"""What only who asks can notice. An address that has never answered well is refused at once,
and these were: so they come when it has.
"""
_FRAMES: Final = (
    Play(lambda: wire.HeartbeatText(share=0.2), heals=False),
    Play(lambda: wire.GoingAway(30, most=4)),
    Play(lambda: wire.ServiceRestart(30, most=4)),
    Play(wire.SwallowedPings),
    Play(lambda: wire.SwallowedMessages(share=0.1), rounds=5),
    Play(wire.FragmentedMessages, heals=False),
)
_REORDERED: Final = Play(lambda: wire.Reordered(0.3, share=0.5), heals=False)
_HOST: Final = Play(wire.HostRewritten, heals=False)
_DELIVERY: Final = (
    Play(wire.AbsoluteTarget, heals=False),
    _HOST,
    Play(wire.Forwarded, heals=False),
    Play(wire.ExpectContinue, heals=False),
    Play(lambda: wire.DuplicateRequest(share=0.5), heals=False),
    Play(lambda: wire.RetryHeaders(share=0.5), heals=False),
    _REORDERED,
)
"""What only who is sent to can notice …"""
_RESENT: Final = Play(lambda: wire.RefreshedResend(share=0.5), heals=False)
_SOAP: Final = (
    Play(wire.Transcoded, heals=False),
    Play(lambda: wire.Multipart(attachment=True), heals=False),
)
"""… and what only SOAP has."""
_SESSIONS: Final = (
    Play(lambda: wire.SessionsEnded(5, share=0.3), from_start=False),
    Play(lambda: wire.PoolerError(5, "BEGIN", share=0.3), from_start=False),
    Play(lambda: wire.QueryWaitTimeout(5, share=0.3), from_start=False),
    Play(wire.ReadOnlyPrimary, from_start=False),
)
_LISTENER: Final = (*_NETWORK, _TRICKLE, *_FRAMING, *_DELIVERY)
_REPORTS: Final = tuple(play for play in _LISTENER if play is not _REORDERED)
"""A provider sends one report at a time (SDPi R1014): none is overtaken."""
_MAINTAINED: Final = (Play(Maintenance),)
_CONNECTING: Final = (
    Play(lambda: wire.TooManyClients(most=3)),
    Play(lambda: wire.StartingUp(most=3)),
)
_LIMIT: Final = Play(lambda: wire.ConnectionLimit(1))
_ASKS: Final = (*_NETWORK, _TRICKLE, *_DIALLING, _LIMIT, *_FRAMING, *_ANSWERS)
_ONE_AT_A_TIME: Final = tuple(play for play in _ASKS if play is not _LIMIT)
"""One connection is enough, so that a limit never shows."""
_EVENTS: Final = tuple(play for play in _ONE_AT_A_TIME if play is not _IDLE)
"""Comments keep the only connection in use."""
_OPENED: Final = (*_NETWORK, _TRICKLE, *(play for play in _DIALLING if play is not _SLOW))
_DATABASE: Final = (
    # To open a store takes dozens of statements, and a rule that never ends would never let it.
    *(Play(play.make, heals=play.heals, from_start=False) for play in _OPENED),
    _SLOW,
    *_SESSIONS,
    *_CONNECTING,
)

_PLAYS: Final[dict[str, tuple[Play, ...]]] = {
    "tapi-websocket": (*_ASKS, _HOST, *_FRAMES),
    "tapi-sse": (*_EVENTS, _HOST, Play(wire.Buffered)),
    "tapi-restconf": (*_ASKS, _HOST),
    "sdpi": _ONE_AT_A_TIME,
    "sdpi-events": (*_REPORTS, *_SOAP, _RESENT),
    "didcomm": (*_LISTENER, _RESENT),
    "wsrm": (*_LISTENER, *_SOAP, _RESENT),
    "wsr": (*_LISTENER, *_SOAP),
    "nats": (*_NETWORK, _TRICKLE),
    "postgresql": _DATABASE,
    # Its senders leave no connection idle.
    "postgresql-messages": tuple(p for p in _DATABASE if p.make().name != _IDLE.make().name),
    "delta": _MAINTAINED,
    "lake": _MAINTAINED,
}
CELLS: Final[dict[tuple[str, str], Play]] = {
    (play.make().name, kind): play for kind, plays in _PLAYS.items() for play in plays
}
"""Rule and kind → how it is played. Where none is, the rule does not reach our side of the wire: a
proxy that answers instead of a listener, say, is noticed by its sender only.
"""
REFUSED_BY_DESIGN: Final = {
    "host-rewritten": "another Host is refused unless it is named: `allow_hosts`, `stream_hosts`"
}
"""Where a refusal with its reason is what is wanted."""
