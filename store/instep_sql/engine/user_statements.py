"""Statements that a user's handler gives, within a transaction of the store."""

from __future__ import annotations

import re
from typing import Any, Final

from sqlalchemy import TextClause, text

from instep.errors import SinkError

__all__ = ["prepared"]

_ENDS: Final = re.compile(
    r"(\s|--[^\n]*\n|/\*.*?\*/|;)*(BEGIN|START|COMMIT|END|ROLLBACK|ABORT|SAVEPOINT|RELEASE)\b",
    re.IGNORECASE | re.DOTALL,
)


def prepared(statement: Any) -> Any:
    """SQL text or a statement of SQLAlchemy as the latter. Raises `SinkError` where the text would
    end the transaction of the store.
    """
    found = text(statement) if isinstance(statement, str) else statement
    if isinstance(found, TextClause) and _ENDS.match(found.text):
        raise SinkError(
            "a handler cannot begin or end a transaction: what it handles is committed in one",
            hint="raise an error to undo what the handler did",
        )
    return found
