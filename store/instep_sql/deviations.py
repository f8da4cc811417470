"""Counts departures from the specification (A10) in the row of the stream or receiver."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, Literal

from sqlalchemy import Connection, text

__all__ = ["count_deviations", "keep_samples"]

_SAMPLE: Final = text("""
    INSERT INTO instep_sample (stream_no, deviation, raw, at_us)
    VALUES (:no, :kind, :raw, :now_us) ON CONFLICT DO NOTHING
""")


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


def keep_samples(
    connection: Connection, no: int, samples: Mapping[str, bytes], now_us: int
) -> None:
    """Keep the first text of each kind that was no record (A17)."""
    for kind, raw in samples.items():
        connection.execute(_SAMPLE, {"no": no, "kind": kind, "raw": raw, "now_us": now_us})
