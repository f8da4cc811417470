"""Rules for PostgreSQL: what servers, fail-overs and poolers do to sessions."""

from __future__ import annotations

from typing import ClassVar

from instep.testing.relay.postgres import PgMessage, PgSession, PostgresRule, error_response
from instep.testing.relay.streams import Cut, Stream

__all__ = [
    "PoolerError",
    "QueryWaitTimeout",
    "ReadOnlyPrimary",
    "SessionsEnded",
    "StartingUp",
    "TooManyClients",
]


class SessionsEnded(PostgresRule):
    """A session is ended in the middle of its work, with SQLSTATE 57P01, as at a restart.

    Args:
        after_statements: How many statements a session may send before.
        at: Where it ends: at a statement that begins so. ``BEGIN``: between two transactions.
    """

    name = "sessions-ended"
    reports: ClassVar[tuple[str, ...]] = (
        "npgsql/npgsql #2896",
        "buildbot/buildbot #2850",
        "sqlalchemy/sqlalchemy #5776",
    )
    errors: tuple[tuple[str, str], ...] = (
        ("57P01", "terminating connection due to administrator command"),
    )

    def __init__(
        self,
        after_statements: int = 20,
        at: str = "",
        *,
        share: float = 1.0,
        most: int | None = None,
    ) -> None:
        super().__init__(share=share, most=most)
        self.after_statements = after_statements
        self.at = at

    async def message_from_client(self, message: PgMessage, session: PgSession) -> PgMessage:
        sql, late = message.statement, session.statements > self.after_statements
        if sql and late and sql.startswith(self.at) and self.strikes():
            await session.end(*(error_response(code, text) for code, text in self.errors))
        return message


class PoolerError(SessionsEnded):
    """A session behind a pooler is ended: the error of the server, then one of the pooler's own,
    then the end.

    Args:
        after_statements: How many statements a session may send before.
        at: Where it ends: at a statement that begins so. ``BEGIN``: between two transactions.
    """

    name = "pooler-error"
    reports = (
        "IBM/mcp-context-forge #1877",
        "brianc/node-postgres #2005",
        "psycopg/psycopg2 #82",
    )
    errors = (
        ("57P01", "terminating connection due to administrator command"),
        ("08P01", "server conn crashed?"),
    )


class QueryWaitTimeout(SessionsEnded):
    """A pooler has no server for a session in time, and ends it: query_wait_timeout.

    Args:
        after_statements: How many statements a session may send before.
        at: Where it ends: at a statement that begins so. ``BEGIN``: between two transactions.
    """

    name = "query-wait-timeout"
    reports = ("MagicStack/asyncpg #1299", "autobase-tech/autobase #89")
    errors = (("08P01", "query_wait_timeout"),)


class ReadOnlyPrimary(PostgresRule):
    """Transactions are read-only, as on a primary that has become a replica: each write gets
    SQLSTATE 25006 from the server, and sessions go on.
    """

    name = "read-only-primary"
    reports = (
        "goldsky-io/streamling #65",
        "brettwooldridge/HikariCP #1556",
        "cloudnative-pg/cloudnative-pg #1254",
    )

    async def message_from_client(self, message: PgMessage, session: PgSession) -> PgMessage:
        del session
        sql = message.statement
        if sql.upper().startswith("BEGIN") and self.strikes():
            return message.with_statement(f"{sql} READ ONLY")
        return message


class TooManyClients(PostgresRule):
    """A new session is refused: too many clients (53300)."""

    name = "too-many-clients"
    reports: ClassVar[tuple[str, ...]] = (
        "docmost/docmost #1324",
        "hashgraph/hedera-nft-auction-demo #151",
    )
    code, text = "53300", "sorry, too many clients already"

    async def starting(self, client: Stream) -> None:
        if self.strikes():
            await client.write(error_response(self.code, self.text).encode())
            raise Cut


class StartingUp(TooManyClients):
    """A new session is refused while the server starts (57P03)."""

    name = "starting-up"
    reports = ("pgbouncer/pgbouncer #946",)
    code, text = "57P03", "the database system is starting up"
