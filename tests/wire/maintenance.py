"""What is done to the tables of a lake while its sink is off: a rule that is no relay."""

from __future__ import annotations

from typing import ClassVar

from deltalake import DeltaTable

from instep.testing.relay import Rule, Side

__all__ = ["Maintenance"]


class Maintenance(Rule):
    """Between two runs of the sink, the files of its tables are joined and the old ones deleted, by
    another engine and at once. No relay: it works on the tables.
    """

    name = "maintenance"
    reports: ClassVar[tuple[str, ...]] = (
        "delta-io/delta #255",
        "delta-io/delta #1365",
        "delta-io/delta #6314",
    )
    sides = frozenset({Side.DATABASE})
    protocol = "Delta"

    def maintain(self, url: str) -> None:
        """Join the files of each table that is there, and delete what is left over."""
        for name in ("changes", "quarantine", "stream_facts"):
            if not DeltaTable.is_deltatable(f"{url}/{name}"):
                continue
            table = DeltaTable(f"{url}/{name}")
            table.optimize.compact()
            gone = table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
            self.played += len(gone) > 0
