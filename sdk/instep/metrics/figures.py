"""Every figure that instep shows of itself: one table, from which the metrics, `status.json`, the
alert rules, the dashboard and the pages are made.

Ages and margins are computed when they are asked for. A label has a closed vocabulary, or names a
consumer of the configuration or a stream that is followed: no text of a peer makes a series.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

import msgspec

from instep.alignment.audit import Verdict
from instep.conformance import RuleStatus
from instep.metrics.readiness import Fault, Part, faults_of
from instep.model.position import Phase
from instep.runtime.health import ConsumerState, Health, StreamHealth

__all__ = [
    "FIGURES",
    "NAMES",
    "STREAMS_SHOWN",
    "Figure",
    "FigureKind",
    "Judged",
    "Sample",
    "Subject",
    "Unit",
    "facts_of",
    "judged",
    "labelled",
    "samples",
]

STREAMS_SHOWN: Final = 2_000
"""Most streams of one consumer that have series; `instep_consumer_streams` counts all."""


class FigureKind(StrEnum):
    """How a figure moves: up and down, or up only."""

    GAUGE = "gauge"
    COUNTER = "counter"


class Unit(StrEnum):
    """In what a figure is counted."""

    SECONDS = "seconds"
    NONE = ""


class Subject(StrEnum):
    """Of what a figure is, and so by which names it is told apart."""

    CONSUMER = "consumer"
    STREAM = "stream"
    INTAKE = "intake"
    LAKE = "lake"
    TABLE = "table"


NAMES: Final = {
    Subject.CONSUMER: ("consumer",),
    Subject.STREAM: ("consumer", "stream"),
    Subject.INTAKE: ("consumer",),
    Subject.LAKE: ("consumer",),
    Subject.TABLE: ("consumer", "table"),
}
"""The names by which the subjects of figures are told apart."""
Value = float | int | None
Read = Callable[[Any, Sequence[Fault]], "Value | Mapping[Any, Value]"]


class Figure(msgspec.Struct, frozen=True):
    """One figure: its name, unit and labels, and the question that it answers."""

    name: str
    """Of the metric: `instep_stream_heard_age_seconds`."""
    key: str
    """In `status.json`: `heard_age_s`."""
    kind: FigureKind
    unit: Unit
    subject: Subject
    read: Read
    """Reads it from the health of its subject and what stands against that. None: not known, so it
    is not shown.
    """
    meaning: str
    question: str
    """What an operator asks that it answers."""
    label: str = ""
    """The label that it has beside the names of its subject; empty: none."""
    values: tuple[str, ...] = ()
    """All that the label can be; empty for `rule`, which is an id of the rules of conformance."""

    @property
    def labels(self) -> tuple[str, ...]:
        """All of its labels, in the order in which they are written."""
        names = NAMES[self.subject]
        return (*names, self.label) if self.label else names


def _counted(faults: Sequence[Fault]) -> Mapping[Any, Value]:
    return {part: sum(one.part is part for one in faults) for part in Part}


def _wrong(one: StreamHealth) -> Mapping[Any, Value]:
    """By verdict, also those of which there are none; nothing where there was no audit."""
    return {} if one.wrong is None else {each: one.wrong.get(each, 0) for each in Verdict}


def _rules(one: Health) -> Mapping[Any, Value]:
    """How many rules were seen held, broken, and not at all; nothing where nobody judges."""
    found = () if one.conformance is None else one.conformance.results
    return Counter(result.status for result in found)


def _broken(one: Health) -> Mapping[Any, Value]:
    found = () if one.conformance is None else one.conformance.broken
    return {result.rule: result.broken for result in found}


def _figures(
    subject: Subject, rows: Sequence[tuple[str, str, str, Read, str, str]]
) -> Iterator[Figure]:
    """Figures of one subject: name, key, kind and unit, how it is read, meaning, question. What is
    in braces in the name is the label.
    """
    for name, key, how, read, meaning, question in rows:
        bare, _, label = name.rstrip("}").partition("{")
        kind, _, unit = how.partition(" ")
        yield Figure(
            f"instep_{subject}_{bare}",
            key,
            FigureKind(kind),
            Unit(unit),
            subject,
            read,
            meaning,
            question,
            label,
            _VOCABULARIES.get(label, ()),
        )


_VOCABULARIES: Final = {
    "phase": tuple(Phase),
    "state": tuple(ConsumerState),
    "mark": ("compaction", "retention"),
    "verdict": tuple(Verdict),
    "part": tuple(Part),
    "status": tuple(RuleStatus),
}
"""Label → all that it can be."""

# fmt: off
FIGURES: Final[tuple[Figure, ...]] = (
    *_figures(Subject.CONSUMER, (
        ("ready", "ready", "gauge", lambda _, faults: not faults,
         "1 where nothing stands against it: in step, heard and committed, or standing by",
         "Is the copy in step now?"),
        ("faults{part}", "faults_by_part", "gauge",
         lambda _, faults: _counted(faults),
         "what stands against its being ready, by who has to act",
         "Who is at fault?"),
        ("state{state}", "state", "gauge", lambda one, _: {one.state: 1},
         "1 for the state that it is in; the others are not shown",
         "Does it run, stand by, or has it failed?"),
        ("streams", "streams_offered", "gauge", lambda one, _: len(one.streams),
         "streams that it follows, or is to follow",
         "Are all streams there?"),
        ("store_answer_age_seconds", "store_answer_age_s", "gauge seconds",
         lambda one, _: one.store_age_s,
         "how long ago the store answered last",
         "Is the database away, or does it hang?"),
        ("loop_lag_seconds", "loop_lag_s", "gauge seconds",
         lambda one, _: one.loop_lag_s,
         "by how much the event loop was late at worst in the last minute or two",
         "Has the process enough processor time?"),
        ("lease_held", "lease_held", "gauge",
         lambda one, _: None if one.pair is None else one.pair.role == "active",
         "1 where this process of a pair is the active one, 0 where it stands by",
         "Which process of the pair works?"),
        ("lease_epoch", "lease_epoch", "gauge",
         lambda one, _: None if one.pair is None else one.pair.epoch,
         "how often the lease was taken, as last read",
         "Does the pair change hands too often?"),
        ("rules{status}", "rules", "gauge", lambda one, _: _rules(one),
         "rules that the peer was seen to hold, to break, and not at all (`conformance = true`)",
         "Does the peer keep to its specification?"),
        ("rules_broken_total{rule}", "rules_broken", "counter", lambda one, _: _broken(one),
         "how often each rule was seen broken since the start, by its id",
         "What does the peer break?"),
        ("messages_judged_total", "messages_judged", "counter",
         lambda one, _: None if one.conformance is None else one.conformance.messages,
         "messages of the peer that were judged since the start",
         "How much of what comes is judged?"),
        ("messages_unjudged_total", "messages_unjudged", "counter",
         lambda one, _: None if one.conformance is None else one.conformance.messages_skipped,
         "messages that were not judged, since judging is bounded",
         "Is there more than can be judged?"),
    )),
    *_figures(Subject.STREAM, (
        ("ready", "ready", "gauge", lambda _, faults: not faults,
         "1 where nothing stands against the stream",
         "Which stream is not in step?"),
        ("connected", "connected", "gauge", lambda one, _: one.connected,
         "1 while it has a connection",
         "Is there a connection?"),
        ("phase{phase}", "phase", "gauge", lambda one, _: {one.phase: 1},
         "1 for the phase that it is in; the others are not shown",
         "How far has the alignment come?"),
        ("phase_age_seconds", "phase_age_s", "gauge seconds",
         lambda one, _: one.phase_age_s,
         "for how long it is in that phase, as far as this process knows",
         "Is it stuck?"),
        ("heard_age_seconds", "heard_age_s", "gauge seconds",
         lambda one, _: one.heard_age_s,
         "how long ago anything came from the provider, a Pong too, where the connection can tell",
         "Does the provider hang?"),
        ("heard_limit_seconds", "heard_within_s", "gauge seconds",
         lambda one, _: one.heard_within_s,
         "from which age of that on the provider is gone",
         "When does a silence count?"),
        ("record_age_seconds", "record_age_s", "gauge seconds",
         lambda one, _: one.record_age_s,
         "how long ago the last record came; in a quiet network it grows",
         "When has something changed last?"),
        ("commit_age_seconds", "commit_age_s", "gauge seconds",
         lambda one, _: one.commit_age_s,
         "how long ago a commit was durable",
         "When was something written last?"),
        ("committing_seconds", "committing_s", "gauge seconds",
         lambda one, _: one.committing_s,
         "how long the commit under way takes already; 0: there is none",
         "Is a commit stuck in the database?"),
        ("behind_seconds", "behind_s", "gauge seconds", lambda one, _: one.behind_s,
         "the greatest age of a change that may be missing (A8)",
         "How old is what the store shows?"),
        ("margin_seconds{mark}", "margin_s", "gauge seconds",
         lambda one, _: {"compaction": one.compaction_margin_s,
                              "retention": one.retention_margin_s},
         "the time left until intermediate states (`compaction`) or ends (`retention`) are lost",
         "How long until something is lost?"),
        ("limit_seconds{mark}", "limit_s", "gauge seconds",
         lambda one, _: {"compaction": one.compaction_delay_s,
                              "retention": one.tombstone_retention_s},
         "what the provider declares as compaction delay and tombstone retention",
         "How much time was there at all?"),
        ("attempt", "attempt", "gauge", lambda one, _: one.attempt,
         "the alignment attempt, counted from 1",
         "Was it aligned anew?"),
        ("attempts_unaligned", "attempts_without_alignment", "gauge",
         lambda one, _: one.attempts_without_alignment,
         "attempts in a row that came to no alignment (A16)",
         "Does it begin again and again?"),
        ("sweep_held", "sweep_held", "gauge",
         lambda one, _: one.phase is Phase.SWEEP_HELD,
         "1 where a sweep waits for a decision (A6)",
         "Does it wait for me?"),
        ("unproven", "unproven", "gauge", lambda one, _: one.unproven,
         "entities of which it is not known whether they exist as stored (A17)",
         "What of the copy is not proven?"),
        ("entities_wrong{verdict}", "entities_wrong", "gauge",
         lambda one, _: _wrong(one),
         "entities that a scheduled audit, or a GET, has found wrong (A12); not shown: none yet",
         "Is the copy right?"),
        ("audit_age_seconds", "audit_age_s", "gauge seconds", lambda one, _: one.audited_age_s,
         "how long ago that audit ended",
         "When was all of it compared last?"),
        ("unreadable", "unreadable", "gauge", lambda one, _: one.unreadable,
         "records of the attempt that could not be read (A11)",
         "What is missing in the copy?"),
        ("records_total", "records", "counter", lambda one, _: one.records,
         "records committed since the consumer started",
         "How much comes?"),
        ("quarantined_total", "quarantined", "counter", lambda one, _: one.quarantined,
         "records put into quarantine since the consumer started",
         "Does the provider send what cannot be read?"),
        ("deviations_total", "deviations_counted", "counter",
         lambda one, _: sum(one.deviations.values()),
         "departures from the specification since the consumer started (A10)",
         "Does the provider keep to its specification?"),
    )),
    *_figures(Subject.INTAKE, (
        ("listening", "listening", "gauge", lambda one, _: bool(one.address),
         "1 while it listens",
         "Can senders reach it?"),
        ("queued", "queued", "gauge", lambda one, _: one.queued,
         "messages that wait for their commit",
         "Does the store keep up?"),
        ("sequences", "sequences", "gauge", lambda one, _: one.sequences,
         "sequences that are kept",
         "How many senders and threads are there?"),
        ("held", "held", "gauge", lambda one, _: one.held,
         "messages buffered behind gaps, in all sequences",
         "What waits for missing numbers?"),
        ("gap_age_seconds", "gap_age_s", "gauge seconds", lambda one, _: one.gap_age_s,
         "for how long the oldest gap of the sequences in memory is known; not shown: none",
         "Is there a gap that never closes?"),
        ("blocked", "blocked_sequences", "gauge", lambda one, _: len(one.blocked),
         "sequences that wait for a decision about a message in quarantine; at most a hundred",
         "Is there a message that nobody can handle?"),
        ("dead", "dead", "gauge", lambda one, _: one.dead,
         "messages in the dead letter (S13)",
         "What was accepted and not delivered?"),
        ("dead_age_seconds", "dead_age_s", "gauge seconds", lambda one, _: one.dead_age_s,
         "for how long the oldest is there; not shown: there is none",
         "For how long does nobody look after it?"),
        ("accepted_total", "accepted", "counter", lambda one, _: one.accepted,
         "messages accepted, each counted once",
         "How much comes?"),
        ("duplicates_total", "duplicates", "counter", lambda one, _: one.duplicates,
         "copies of messages that were accepted before",
         "Do senders lose our answers?"),
        ("refused_total", "refused", "counter", lambda one, _: one.refused,
         "messages and connections that were refused",
         "Is somebody turned away?"),
        ("delivered_total", "delivered", "counter", lambda one, _: one.delivered,
         "messages delivered",
         "How much is done?"),
        ("handler_failures_total", "handler_failures", "counter",
         lambda one, _: one.handler_failures,
         "attempts of the handler that failed",
         "Does my handler work?"),
        ("failed_sequences_total", "failed_sequences", "counter",
         lambda one, _: one.failed_sequences,
         "sequences that have failed since the start, and are frozen with what they hold (S13)",
         "Was something given up?"),
        ("deviations_total", "deviations_counted", "counter",
         lambda one, _: sum(one.deviations.values()),
         "departures of the peers from their specification",
         "Do the senders keep to their specification?"),
    )),
    *_figures(Subject.LAKE, (
        ("looked_age_seconds", "looked_age_s", "gauge seconds", lambda one, _: one.looked_age_s,
         "how long ago `instep lake run` looked for what has landed",
         "Does the lake's job move?"),
    )),
    *_figures(Subject.TABLE, (
        ("behind_ordinals", "behind", "gauge", lambda one, _: one.behind,
         "ordinals of `changes` that the table lacks, as of the last look",
         "Which table is behind, and by how much?"),
        ("behind_seconds", "behind_s", "gauge seconds", lambda one, _: one.behind_s,
         "for how long it lacks some; 0: it lacks none",
         "Does the lake keep up?"),
    )),
)
# fmt: on
"""The table."""


class Judged(NamedTuple):
    """What figures are read of."""

    names: tuple[str, ...]
    """The values of its subject's `NAMES`."""
    health: Any
    """The struct of `instep.runtime.health` that its figures read."""
    faults: Sequence[Fault]
    """What stands against its being ready."""


def judged(healths: Sequence[Health]) -> dict[Subject, list[Judged]]:
    """All that figures are read of."""
    found: dict[Subject, list[Judged]] = {subject: [] for subject in Subject}
    for health in healths:
        for subject, one in _subjects(health):
            found[subject].append(one)
    return found


class Sample(NamedTuple):
    """One figure of one subject at one time."""

    figure: Figure
    names: tuple[str, ...]
    """The values of its subject's `NAMES` …"""
    label: str
    """… and that of `Figure.label`; empty where it has none."""
    value: float


def samples(healths: Sequence[Health]) -> Iterator[Sample]:
    """All that is known, figure by figure."""
    found = judged(healths)
    for figure in FIGURES:
        for one in found[figure.subject]:
            for label, value in labelled(figure, figure.read(one.health, one.faults)):
                yield Sample(figure, one.names, label, value)


def labelled(figure: Figure, read: Any) -> list[tuple[str, float]]:
    """The values of a figure by its label, which is empty where it has none. A word that is not in
    the vocabulary makes no series; the ids of rules are those of a rule book, and of no peer.
    """
    if not figure.label:
        return [] if read is None else [("", read)]
    values, any_word = figure.values, figure.label == "rule"
    return [
        (word, value)
        for word, value in read.items()
        if value is not None and (any_word or word in values)
    ]


def facts_of(health: Health) -> dict[str, Any]:
    """The figures of a consumer as plain data, each under its `key`, with its faults and streams;
    the errors in words are beside them.
    """
    faults = faults_of([health])
    told: dict[str, Any] = {"consumer": health.consumer, "error": health.error}
    streams: list[dict[str, Any]] = []
    tables: list[dict[str, Any]] = []
    for subject, one in _subjects(health):
        figures = {
            figure.key: _plain(figure, figure.read(one.health, one.faults))
            for figure in _BY_SUBJECT[subject]
        }
        match subject:
            case Subject.CONSUMER:
                told |= figures
            case Subject.INTAKE | Subject.LAKE:
                told[subject] = figures
            case Subject.TABLE:
                tables.append({"table": one.health.table, **figures})
            case Subject.STREAM:
                stream: StreamHealth = one.health
                errors = {"error": stream.last_error, "state": stream.freshness.state}
                streams.append({"stream": stream.stream, **errors, **figures})
    told["faults"] = [{"part": one.part, "stream": one.stream, "text": one.text} for one in faults]
    if health.lake is not None:
        told["tables"] = tables
    return told | {"streams": streams}


def _plain(figure: Figure, read: Any) -> Any:
    if figure.label in ("phase", "state"):
        return next(iter(read))
    if isinstance(read, Mapping):
        return {str(label): value for label, value in read.items()}
    return read


_BY_SUBJECT: Final = {
    subject: tuple(one for one in FIGURES if one.subject is subject) for subject in Subject
}


def _subjects(health: Health) -> Iterator[tuple[Subject, Judged]]:
    faults = faults_of([health])
    yield Subject.CONSUMER, Judged((health.consumer,), health, faults)
    if health.intake is not None:
        yield Subject.INTAKE, Judged((health.consumer,), health.intake, faults)
    if health.lake is not None:
        yield Subject.LAKE, Judged((health.consumer,), health.lake, faults)
        for table in health.lake.tables:
            yield Subject.TABLE, Judged((health.consumer, table.table), table, faults)
    by_stream: dict[str, list[Fault]] = {}
    for fault in faults:
        by_stream.setdefault(fault.stream, []).append(fault)
    all_ = by_stream.get("", [])
    for stream in health.streams[:STREAMS_SHOWN]:
        own = all_ or by_stream.get(stream.stream, [])
        yield Subject.STREAM, Judged((health.consumer, stream.stream), stream, own)
