"""The scenarios: one for each line of the table, and the ratio that it has to reach."""

from __future__ import annotations

import msgspec

__all__ = [
    "MDIB",
    "MEMORY",
    "RATIO_TARGET",
    "REPORTS",
    "REPORT_SHARE",
    "SCENARIOS",
    "SEQUENCES",
    "SEQUENCE_RATIO_TARGET",
    "MdibScenario",
    "ReportScenario",
    "Scenario",
    "SequenceScenario",
]

RATIO_TARGET = 0.8
"""Least share of the floor's records a second, where a scenario names no other."""
SEQUENCE_RATIO_TARGET = 0.7
"""The same of messages of numbered sequences."""


class Scenario(msgspec.Struct, frozen=True):
    """One kind of load. `keys` 0 means as many as records."""

    name: str
    text: str
    per_frame: int = 1
    keys: int = 0
    prefill: bool = False
    """Each key is in the store before the measured part begins."""
    journal: bool = False
    """Both write a row for each change: the product with journal = "changes"."""
    kept: str = ""
    """What both write beside the entities: "references", "projection" (the ready table `alarm`) or
    "alarms" (their episodes)."""
    shape: str = ""
    """Another spelling of the record (`bench.alignment.alarm.SHAPES`)."""
    postgresql: bool = False
    """Into a PostgreSQL server, started for it, instead of a SQLite file."""

    @property
    def target(self) -> float:
        """Least share of the floor's records a second: more where less is kept, less where no
        offset proves the order of many records at once.
        """
        if self.shape == "no-offsets":
            return 0.5
        if self.kept == "references":
            return 0.75
        return RATIO_TARGET if self.journal or self.kept else 0.9


SCENARIOS = (
    Scenario("new-1", "new keys, 1 a frame"),
    Scenario("update-1", "all updates, 1 a frame", prefill=True),
    Scenario("storm-1", "storm over 100 keys, 1 a frame", keys=100),
    Scenario("new-50", "new keys, 50 a frame", per_frame=50),
    Scenario("update-50", "all updates, 50 a frame", per_frame=50, prefill=True),
    Scenario("storm-50", "storm over 100 keys, 50 a frame", per_frame=50, keys=100),
    Scenario("shape-list", 'new keys, {"log-record":[r]} a frame', shape="list"),
    Scenario("shape-object", 'new keys, {"log-record":r} a frame', shape="object"),
    Scenario("shape-prefixed", "new keys, names with their module", shape="prefixed"),
    Scenario("shape-vendor", "new keys, a vendor's member in the header", shape="vendor"),
    Scenario("shape-no-offsets", "new keys, no offsets", shape="no-offsets"),
    Scenario("journal-new", "new keys, 1 a frame, with a journal", journal=True),
    Scenario(
        "journal-update", "all updates, 1 a frame, with a journal", prefill=True, journal=True
    ),
    Scenario(
        "journal-storm", "storm over 100 keys, 50 a frame, with a journal", 50, 100, journal=True
    ),
    Scenario("references-new", "new keys, with their references", kept="references"),
    Scenario("references-update", "all updates, with references", prefill=True, kept="references"),
    Scenario("projection-new", "new keys, with a projection", kept="projection"),
    Scenario(
        "projection-update", "all updates, with a projection", prefill=True, kept="projection"
    ),
    Scenario("alarms-new", "new keys, with episodes of alarms", kept="alarms"),
    Scenario("alarms-update", "all updates, with episodes of alarms", prefill=True, kept="alarms"),
    Scenario("postgresql-new", "new keys into PostgreSQL", postgresql=True),
    Scenario("postgresql-update", "all updates in PostgreSQL", prefill=True, postgresql=True),
)
MEMORY = Scenario("memory", "all updates over 20,000 keys", keys=20_000, prefill=True)


class SequenceScenario(msgspec.Struct, frozen=True):
    """Numbered messages: of one sequence in memory, or of many senders over HTTP."""

    name: str
    text: str
    load: str = ""
    """In memory: how they arrive (`bench.sequences.in_memory`)."""
    senders: int = 0
    """Over HTTP: so many connections, a scope each."""
    protocol: str = "didcomm"
    """What they speak (`bench.sequences.protocols`)."""


SEQUENCES = (
    SequenceScenario(
        "sequence-in-order", "one sequence in memory, in order, 500 at a time", "in-order"
    ),
    SequenceScenario("sequence-shuffled", "the same, shuffled within 64 numbers", "shuffled"),
    SequenceScenario("sequence-lost", "the same, 10 % lost and sent again", "lost"),
    SequenceScenario("inbox-100", "100 senders over HTTP, durable", senders=100),
    SequenceScenario(
        "wsrm-100", "100 sources of WS-ReliableMessaging", senders=100, protocol="wsrm"
    ),
    SequenceScenario("wsr-100", "100 senders of WS-Reliability", senders=100, protocol="wsr"),
)


class ReportScenario(msgspec.Struct, frozen=True):
    """Reports of a BICEPS device, one after the other (SDPi R1014)."""

    name: str
    text: str
    states: int
    """Of each report."""
    metrics: int = 200
    """Of the MDIB: the states of reports are of these, in turn."""


class MdibScenario(msgspec.Struct, frozen=True):
    """An MDIB that is read whole."""

    name: str
    text: str
    metrics: int
    """Each is a descriptor and a state."""
    longest_stall_s: float
    """The longest time that the event loop may be held up."""


REPORT_SHARE = 20
"""A run has a report for so many records: each waits for a commit of its own."""
REPORTS = (
    ReportScenario("reports-1", "reports of a device, 1 state each", states=1),
    ReportScenario("reports-50", "the same, 50 states each", states=50),
)
MDIB = MdibScenario("mdib", "an MDIB of 10,000 metrics", metrics=10_000, longest_stall_s=0.1)
