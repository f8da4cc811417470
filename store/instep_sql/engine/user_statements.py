"""Statements that a user's handler gives, within a transaction of the store."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, TextClause, text

from instep.errors import SinkError

__all__ = ["execution"]

_ENDS: Final = re.compile(
    r"(\s|--[^\n]*\n|/\*.*?\*/|;)*(BEGIN|START|COMMIT|END|ROLLBACK|ABORT|SAVEPOINT|RELEASE)\b",
    re.IGNORECASE | re.DOTALL,
)


def execution(
    statement: Any, parameters: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None
) -> Callable[[Connection], Any]:
    """What executes SQL text, or a statement of SQLAlchemy, in the thread of the database. Raises
    `SinkError` where the text would end the transaction of the store.
    """
    found = text(statement) if isinstance(statement, str) else statement
    if isinstance(found, TextClause) and _ENDS.match(found.text):
        raise SinkError(
            "a handler cannot begin or end a transaction: what it handles is committed in one",
            hint="raise an error to undo what the handler did",
        )

    def work(connection: Connection) -> Any:
        result = connection.execute(found, parameters)
        # Rows are fetched here: their cursor belongs to this thread.
        return result.freeze()() if result.returns_rows else result

    return work
