"""Translates PostgreSQL's errors for the user, and decides whether a transaction can be
run again.

A code alone does not tell whether an error is final: a pooler between adds errors of its own, and
the driver raises errors that have no code. So the state of the connection counts as well.
"""

from __future__ import annotations

from typing import Any, Final

import psycopg
from sqlalchemy import Connection

from instep.errors import SinkError, StoreUnavailableError
from instep_sql.engine.dialect import FailureKind, UnstorableError
from instep_sql.engine.postgres.answer_timeout import AnswerTimeoutError

__all__ = ["cannot_mean", "failure_kind", "sqlstate_of", "translate"]

# By SQLSTATE or its class (the first two characters).
_RERUN: Final = frozenset({"40001", "40P01"})
_LOST: Final = frozenset({"08", "57P01", "57P02", "57P03", "57P05", "25P03", "25P04", "25006"})
"""25006, read_only_sql_transaction: after a fail-over, another server may take the writes."""
_READS: Final = 3
_ENDS_SESSION: Final = frozenset({"FATAL", "PANIC"})
_UNSTORABLE: Final = frozenset({"22021", "22P05", "54000"})
"""54000, program_limit_exceeded: a key that is too long for an index."""
_UNAVAILABLE: Final[dict[str, tuple[str, str]]] = {
    "40": (
        "the transaction met others again and again",
        "nothing of the batch was committed; end what else writes to these tables",
    ),
    "53100": (
        "the server's disk is full",
        "make room; nothing of the batch was committed and it can be tried again",
    ),
    "53": (
        "the server has no resources for another connection or statement",
        "raise its limits, or end other connections",
    ),
    "57014": (
        "a statement exceeded its time limit and was ended",
        "raise statement_timeout_s, or look at what holds the server up",
    ),
    "55P03": ("a lock was not to be had", "end what else writes to these tables"),
    "58": ("the server could not read or write its disk", "see the server's log"),
    "25006": (
        "the server takes no writes: it is a standby, or was made read-only",
        "name the primary, or add target_session_attrs=read-write to a URL of several hosts",
    ),
}
_OTHER_SESSION: Final = (
    "a pooler that is not recognized as one changed the session between two statements",
    "connect to the server directly, or to a pool with pool_mode = session",
)
_UNUSABLE: Final[dict[str, tuple[str, str]]] = {
    "42501": (
        "this user is not allowed to do that",
        "grant CREATE on the schema and TEMPORARY on the database, or connect as the tables' owner",
    ),
    "3F000": (
        "there is no schema to make the tables in",
        "name one with the option schema",
    ),
    "26000": _OTHER_SESSION,
    "42P05": _OTHER_SESSION,
}
# libpq gives no SQLSTATE for a refused connection, only a message; a pooler has one SQLSTATE for
# everything.
_REFUSED: Final[tuple[tuple[str, str, str], ...]] = (
    (
        "unsupported startup parameter",
        "the pooler does not pass on the options in the URL or in PGOPTIONS",
        "leave them out, and set them for the role: ALTER ROLE … SET …",
    ),
    (
        "in statement pooling mode",
        "this pooler pools statements, and instep needs transactions",
        "set pool_mode = transaction or session for this database, or connect to the server",
    ),
    (
        "password",
        "the password was not accepted",
        "look at user and password in the URL, or at the password file",
    ),
    ("no pg_hba.conf entry", "the server does not let this user in from here", "see pg_hba.conf"),
    (
        "certificate",
        "the server's certificate was not accepted",
        "give the authority with sslrootcert=FILE in the URL",
    ),
    (
        "does not support SSL",
        "the server offers no TLS",
        "enable TLS, or add sslmode=disable to the URL if the network is trusted",
    ),
    ("does not exist", "there is no such database or user", "look at the URL, or create it"),
    ("no such database", "the pooler knows no such database", "look at the URL, or at [databases]"),
    ("no such user", "the pooler knows no such user", "look at the URL, or at its auth_file"),
)


def sqlstate_of(error: BaseException) -> str | None:
    """The SQLSTATE (five characters) of an error; None if the server gave none."""
    orig = _orig(error)
    return orig.sqlstate if isinstance(orig, psycopg.Error) else None


def failure_kind(error: BaseException, connection: Connection | None = None) -> FailureKind:
    """Whether the transaction can be run again. `connection`: the one that it ran on, as it is
    after the error; None: there was none yet.
    """
    if _refusal(error):
        return FailureKind.FINAL
    orig, state = _orig(error), sqlstate_of(error)
    if isinstance(orig, AnswerTimeoutError | psycopg.errors.ConnectionTimeout):
        return FailureKind.UNANSWERED
    if state is None:
        # Of the driver: nobody answers, or the answer is not that to the statement (a server that
        # ends a session and a pooler that tells so give two).
        lost = isinstance(orig, (psycopg.OperationalError, psycopg.InternalError))
    else:
        lost = state in _LOST or state[:2] in _LOST
    if lost or _ended_session(orig) or _is_broken(connection):
        return FailureKind.LOST
    return FailureKind.RERUN if state in _RERUN else FailureKind.FINAL


def _ended_session(orig: BaseException) -> bool:
    return isinstance(orig, psycopg.Error) and orig.diag.severity_nonlocalized in _ENDS_SESSION


def _is_broken(connection: Connection | None) -> bool:
    if connection is None or connection.closed:
        return False
    if connection.invalidated:
        return True
    raw = connection.connection.driver_connection
    if not isinstance(raw, psycopg.Connection) or raw.closed:
        return True
    try:
        # An end of the connection may have come in unread, behind the server's last words.
        for _ in range(_READS):
            raw.pgconn.consume_input()
    except psycopg.Error:
        return True
    return raw.closed


def cannot_mean(error: BaseException) -> bool:
    """Whether the server refuses the statement for what it says: see `Dialect`."""
    state = sqlstate_of(error) or ""
    # 42501, insufficient_privilege, has an advice of its own.
    return state[:2] in {"0A", "42", "54"} and state != "42501"


def translate(error: BaseException, where: str, kind: FailureKind) -> SinkError:
    """The error as a `SinkError`, with the server's message but without the values of the
    statement. `kind` is what `failure_kind` says of it.
    """
    state = sqlstate_of(error)
    server_message = str(_orig(error)).strip().partition("\n")[0]
    facts: dict[str, Any] = {"sqlstate": state} if state else {}
    if refusal := _refusal(error):
        return SinkError(f"{refusal[0]}: {server_message}", where=where, hint=refusal[1], **facts)
    if isinstance(_orig(error), AnswerTimeoutError):
        return StoreUnavailableError(
            server_message,
            where=where,
            hint="look at the server and at a proxy or pooler before it; nothing is lost: a"
            " consumer tries again",
        )
    if kind.is_disconnect and state not in _UNAVAILABLE:
        return StoreUnavailableError(
            f"the server cannot be reached: {server_message}",
            where=where,
            hint="check that it runs and can be reached; nothing is lost: a consumer tries again",
            **facts,
        )
    if state in _UNSTORABLE or (state is None and isinstance(_orig(error), psycopg.DataError)):
        return UnstorableError(
            f"the database cannot store this value: {server_message}", where=where, **facts
        )
    for key in (state or "", (state or "")[:2]):
        if key in _UNAVAILABLE:
            message, hint = _UNAVAILABLE[key]
            return StoreUnavailableError(
                f"{message}: {server_message}", where=where, hint=hint, **facts
            )
        if key in _UNUSABLE:
            message, hint = _UNUSABLE[key]
            return SinkError(f"{message}: {server_message}", where=where, hint=hint, **facts)
    return SinkError(f"the database refused: {server_message}", where=where, **facts)


def _orig(error: BaseException) -> BaseException:
    return getattr(error, "orig", None) or error


def _refusal(error: BaseException) -> tuple[str, str] | None:
    orig = _orig(error)
    if not isinstance(orig, psycopg.OperationalError) or orig.sqlstate not in {None, "08P01"}:
        return None
    server_message = str(orig)
    return next(((what, hint) for words, what, hint in _REFUSED if words in server_message), None)
