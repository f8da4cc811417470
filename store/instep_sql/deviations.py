"""Counts departures from the specification (A10) in the row of the stream or receiver."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Literal

from sqlalchemy import Connection, text

__all__ = ["count_deviations"]


def count_deviations(
    connection: Connection,
    table: Literal["instep_stream", "instep_receiver"],
    no: int,
    deviations: Mapping[str, int],
) -> None:
    """Add to the counts of a row, by kind of deviation (A10).

    The transaction has locked the row (`instep_sql.fencing`), so no other count is lost.
    """
    read = text(f"SELECT deviations FROM {table} WHERE id = :no")
    counts: dict[str, int] = json.loads(connection.execute(read, {"no": no}).scalar_one())
    for kind, count in deviations.items():
        counts[kind] = counts.get(kind, 0) + count
    connection.execute(
        text(f"UPDATE {table} SET deviations = :counts WHERE id = :no"),
        {"no": no, "counts": json.dumps(counts)},
    )
