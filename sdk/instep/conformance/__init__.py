"""Which rules of a specification a peer holds, judged from what it sent, with evidence.

`RuleBook` has the rules of a protocol as data, `judge` the report on a trace.
"""

from instep.conformance.budget import JudgingBudget
from instep.conformance.events import (
    ConnectionClosed,
    ConnectionOpened,
    ConnectionRefused,
    Event,
    MessageReceived,
    MessagesSkipped,
    PongSent,
    PongsWithheld,
    ReadingPaused,
    ReadingResumed,
    RequestAnswered,
    RequestReceived,
    ResendRequested,
    ResponseReceived,
)
from instep.conformance.judging import ConformanceReport, RuleResult, RuleStatus, TraceJudge, judge
from instep.conformance.live import LiveJudge
from instep.conformance.metering import MeteredRecorder
from instep.conformance.rules import (
    HELD,
    NOTHING,
    Clause,
    Evidence,
    Judge,
    Observer,
    Rule,
    RuleBook,
    RuleBroken,
    RuleLevel,
    UnjudgedClause,
    Verdict,
)
from instep.conformance.trace import TraceRing, event_line, read_events

__all__ = [
    "HELD",
    "NOTHING",
    "Clause",
    "ConformanceReport",
    "ConnectionClosed",
    "ConnectionOpened",
    "ConnectionRefused",
    "Event",
    "Evidence",
    "Judge",
    "JudgingBudget",
    "LiveJudge",
    "MessageReceived",
    "MessagesSkipped",
    "MeteredRecorder",
    "Observer",
    "PongSent",
    "PongsWithheld",
    "ReadingPaused",
    "ReadingResumed",
    "RequestAnswered",
    "RequestReceived",
    "ResendRequested",
    "ResponseReceived",
    "Rule",
    "RuleBook",
    "RuleBroken",
    "RuleLevel",
    "RuleResult",
    "RuleStatus",
    "TraceJudge",
    "TraceRing",
    "UnjudgedClause",
    "Verdict",
    "event_line",
    "judge",
    "read_events",
]
