"""Which rules of a specification a peer holds, judged from what it sent, with evidence.

`RuleBook` has the rules of a protocol as data, `judge` the report on a trace.
"""

from instep.conformance.events import (
    Answered,
    Closed,
    Event,
    Frame,
    Opened,
    Received,
    Replied,
    Skipped,
)
from instep.conformance.judging import Judging, Report, Result, Status, judge
from instep.conformance.rules import (
    HELD,
    NOTHING,
    Broken,
    Clause,
    Evidence,
    Judge,
    Level,
    Observer,
    Rule,
    RuleBook,
    Verdict,
)
from instep.conformance.trace import TraceRing, event_line, read_events

__all__ = [
    "HELD",
    "NOTHING",
    "Answered",
    "Broken",
    "Clause",
    "Closed",
    "Event",
    "Evidence",
    "Frame",
    "Judge",
    "Judging",
    "Level",
    "Observer",
    "Opened",
    "Received",
    "Replied",
    "Report",
    "Result",
    "Rule",
    "RuleBook",
    "Skipped",
    "Status",
    "TraceRing",
    "Verdict",
    "event_line",
    "judge",
    "read_events",
]
