"""Translates PostgreSQL's errors for the user, and decides whether a transaction can be
run again.
"""

from __future__ import annotations

from typing import Any, Final

import psycopg

from instep.errors import SinkError, StoreUnavailableError
from instep_sql.engine.dialect import FailureKind, UnstorableError

__all__ = ["failure_kind", "sqlstate_of", "translate"]

# By SQLSTATE or its class (the first two characters).
_RERUN: Final = frozenset({"40001", "40P01"})
_LOST: Final = frozenset({"08", "57P01", "57P02", "57P03", "57P05", "25P03", "25P04"})
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
        "the server takes no writes: it is a standby",
        "name the primary, or add target_session_attrs=read-write to a URL of several hosts",
    ),
}
_UNUSABLE: Final[dict[str, tuple[str, str]]] = {
    "42501": (
        "this user is not allowed to do that",
        "grant CREATE on the schema and TEMPORARY on the database, or connect as the tables' owner",
    ),
    "3F000": (
        "there is no schema to make the tables in",
        "name one with the option schema",
    ),
}
# libpq gives no SQLSTATE for a refused connection, only a message.
_REFUSED: Final[tuple[tuple[str, str, str], ...]] = (
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
)


def sqlstate_of(error: BaseException) -> str | None:
    """The SQLSTATE (five characters) of an error; None if the server gave none."""
    orig = _orig(error)
    return orig.sqlstate if isinstance(orig, psycopg.Error) else None


def failure_kind(error: BaseException) -> FailureKind:
    """Whether the transaction can be run again, by SQLSTATE or by a lost connection."""
    state = sqlstate_of(error)
    if state in _RERUN:
        return FailureKind.RERUN
    if state is None:
        lost = isinstance(_orig(error), psycopg.OperationalError) and not _refusal(error)
        return FailureKind.LOST if lost else FailureKind.FINAL
    return FailureKind.LOST if state in _LOST or state[:2] in _LOST else FailureKind.FINAL


def translate(error: BaseException, where: str) -> SinkError:
    """The error as a `SinkError`, with the server's message but without the values of the
    statement.
    """
    state = sqlstate_of(error)
    server_message = str(_orig(error)).strip().partition("\n")[0]
    facts: dict[str, Any] = {"sqlstate": state} if state else {}
    if refusal := _refusal(error):
        return SinkError(f"{refusal[0]}: {server_message}", where=where, hint=refusal[1], **facts)
    if failure_kind(error) is FailureKind.LOST:
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
    if not isinstance(orig, psycopg.OperationalError) or orig.sqlstate is not None:
        return None
    server_message = str(orig)
    return next(((what, hint) for words, what, hint in _REFUSED if words in server_message), None)
