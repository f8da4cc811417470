"""PostgreSQL's protocol, version 3, for rules."""

from __future__ import annotations

from dataclasses import dataclass

from instep.testing.relay.rule import Rule, Side, together
from instep.testing.relay.streams import Cut, Dial, Stream

__all__ = ["PgMessage", "PgSession", "PostgresRule", "error_response"]

_CANCEL, _SSL, _GSSENC = 80877102, 80877103, 80877104
_MOST_BYTES = 1 << 30


@dataclass(frozen=True)
class PgMessage:
    """A message: its type, a byte, and what follows its length."""

    kind: bytes
    payload: bytes = b""

    def encode(self) -> bytes:
        """The bytes on the wire."""
        return self.kind + (len(self.payload) + 4).to_bytes(4, "big") + self.payload

    @property
    def statement(self) -> str:
        """The SQL text of a Query or a Parse; empty for all others."""
        match self.kind:
            case b"Q":
                raw = self.payload
            case b"P":
                raw = self.payload.partition(b"\0")[2]
            case _:
                return ""
        return raw.partition(b"\0")[0].decode(errors="replace")

    def with_statement(self, sql: str) -> PgMessage:
        """The same Query or Parse with another text."""
        name = b"" if self.kind == b"Q" else self.payload.partition(b"\0")[0] + b"\0"
        rest = self.payload[len(name) :].partition(b"\0")[2]
        return PgMessage(self.kind, name + sql.encode() + b"\0" + rest)


def error_response(code: str, text: str, severity: str = "FATAL") -> PgMessage:
    """An ErrorResponse with this SQLSTATE."""
    fields = {"S": severity, "V": severity, "C": code, "M": text}
    raw = b"".join(name.encode() + value.encode() + b"\0" for name, value in fields.items())
    return PgMessage(b"E", raw + b"\0")


@dataclass
class PgSession:
    """One session: both of its ends, and how many statements it has sent."""

    client: Stream
    server: Stream
    statements: int = 0

    async def end(self, *errors: PgMessage) -> None:
        """Send these errors to the client and end the session, as a server does."""
        await self.client.write(b"".join(error.encode() for error in errors))
        raise Cut


class PostgresRule(Rule):
    """A rule for PostgreSQL: it stands between the messages of both sides.

    Override `starting` or `message_from_client`. TLS is refused, so that the client speaks plainly.
    """

    sides = frozenset({Side.DATABASE})
    protocol = "PostgreSQL"

    async def serve(self, client: Stream, dial: Dial) -> None:
        """Serve one session until it ends."""
        raw, code = await _read_start(client)
        while code in (_SSL, _GSSENC):
            await client.write(b"N")
            raw, code = await _read_start(client)
        if code != _CANCEL:
            await self.starting(client)
        server = await dial()
        try:
            await server.write(raw)
            if code == _CANCEL:
                await self.pass_on(client, server)
                return
            session = PgSession(client, server)
            await together(self._up(session), self._down(session))
        finally:
            await server.close()

    async def starting(self, client: Stream) -> None:
        """Called before the server is dialled. Raises `Cut` to refuse the session."""

    async def message_from_client(self, message: PgMessage, session: PgSession) -> PgMessage:
        """What goes to the server for a message of the client. Raises `Cut` to end the session."""
        del session
        return message

    async def _up(self, session: PgSession) -> None:
        while True:
            kind = await session.client.read_exactly(1)
            length = int.from_bytes(await session.client.read_exactly(4), "big")
            if not 4 <= length <= _MOST_BYTES:
                raise Cut
            message = PgMessage(kind, await session.client.read_exactly(length - 4))
            session.statements += message.kind in (b"Q", b"P")
            passed = await self.message_from_client(message, session)
            await session.server.write(passed.encode())

    async def _down(self, session: PgSession) -> None:
        while data := await session.server.read():
            await session.client.write(data)
        raise Cut


async def _read_start(client: Stream) -> tuple[bytes, int]:
    """The first message of a session, which has no type, and its code."""
    length = await client.read_exactly(4)
    rest = await client.read_exactly(min(int.from_bytes(length, "big"), 10_000) - 4)
    return length + rest, int.from_bytes(rest[:4], "big")
