"""Every figure that instep shows of itself: one table, from which the metrics, `status.json`, the
alert rules, the dashboard and the pages are made.

Ages and margins are computed when they are asked for. A label has a closed vocabulary, or names a
consumer of the configuration or a stream that is followed: no text of a peer makes a series.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec

from instep.metrics.readiness import Fault, Part, faults_of
from instep.model.position import Phase
from instep.runtime.health import ConsumerState, Health, IntakeHealth, StreamHealth

__all__ = [
    "FIGURES",
    "STREAMS_SHOWN",
    "Figure",
    "FigureKind",
    "Sample",
    "Subject",
    "Unit",
    "facts_of",
    "samples",
]

STREAMS_SHOWN: Final = 2_000
"""Most streams of one consumer that have series; `instep_consumer_streams` counts all."""


class FigureKind(StrEnum):
    """How a figure moves."""

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


Value = float | int | None
Read = Callable[[Any], "Value | Mapping[Any, Value]"]


class Figure(msgspec.Struct, frozen=True):
    """One figure."""

    name: str
    """Of the metric: `instep_stream_heard_age_seconds`."""
    key: str
    """In `status.json`: `heard_age_s`."""
    kind: FigureKind
    unit: Unit
    subject: Subject
    read: Read
    """Reads it from the health of its subject. None: not known, so it is not shown."""
    meaning: str
    question: str
    """What an operator asks that it answers."""
    label: str = ""
    """The label that it has beside the names of its subject; empty: none."""
    values: tuple[str, ...] = ()
    """All that the label can be."""

    @property
    def labels(self) -> tuple[str, ...]:
        """All labels, in order."""
        names = ("consumer", "stream") if self.subject is Subject.STREAM else ("consumer",)
        return (*names, self.label) if self.label else names


class _Judged(msgspec.Struct, frozen=True):
    """A consumer, and what stands against its being ready."""

    health: Health
    faults: Sequence[Fault]


class _JudgedStream(msgspec.Struct, frozen=True):
    stream: StreamHealth
    ready: bool


def _consumer(read: Callable[[Health], Any]) -> Read:
    return lambda judged: read(judged.health)


def _stream(read: Callable[[StreamHealth], Any]) -> Read:
    return lambda judged: read(judged.stream)


def _intake(read: Callable[[IntakeHealth], Any]) -> Read:
    return read


def _counted(faults: Sequence[Fault]) -> Mapping[Any, Value]:
    return {part: sum(one.part is part for one in faults) for part in Part}


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
    "part": tuple(Part),
}
"""Label → all that it can be."""

# fmt: off
FIGURES: Final[tuple[Figure, ...]] = (
    *_figures(Subject.CONSUMER, (
        ("ready", "ready", "gauge", lambda judged: not judged.faults,
         "1 where nothing stands against it: in step, heard and committed, or standing by",
         "Is the copy in step now?"),
        ("faults{part}", "faults_by_part", "gauge",
         lambda judged: _counted(judged.faults),
         "what stands against its being ready, by who has to act",
         "Who is at fault?"),
        ("state{state}", "state", "gauge", _consumer(lambda one: {one.state: 1}),
         "1 for the state that it is in; the others are not shown",
         "Does it run, stand by, or has it failed?"),
        ("streams", "streams_offered", "gauge", _consumer(lambda one: len(one.streams)),
         "streams that it follows, or is to follow",
         "Are all streams there?"),
        ("store_answer_age_seconds", "store_answer_age_s", "gauge seconds",
         _consumer(lambda one: one.store_age_s),
         "how long ago the store answered last",
         "Is the database away, or does it hang?"),
        ("loop_lag_seconds", "loop_lag_s", "gauge seconds",
         _consumer(lambda one: one.loop_lag_s),
         "by how much the event loop was late at worst in the last minute or two",
         "Has the process enough processor time?"),
        ("lease_held", "lease_held", "gauge",
         _consumer(lambda one: None if one.pair is None else one.pair.role == "active"),
         "1 where this process of a pair is the active one, 0 where it stands by",
         "Which process of the pair works?"),
        ("lease_epoch", "lease_epoch", "gauge",
         _consumer(lambda one: None if one.pair is None else one.pair.epoch),
         "how often the lease was taken, as last read",
         "Does the pair change hands too often?"),
    )),
    *_figures(Subject.STREAM, (
        ("ready", "ready", "gauge", lambda judged: judged.ready,
         "1 where nothing stands against the stream",
         "Which stream is not in step?"),
        ("connected", "connected", "gauge", _stream(lambda one: one.connected),
         "1 while it has a connection",
         "Is there a connection?"),
        ("phase{phase}", "phase", "gauge", _stream(lambda one: {one.phase: 1}),
         "1 for the phase that it is in; the others are not shown",
         "How far has the alignment come?"),
        ("phase_age_seconds", "phase_age_s", "gauge seconds",
         _stream(lambda one: one.phase_age_s),
         "for how long it is in that phase, as far as this process knows",
         "Is it stuck?"),
        ("heard_age_seconds", "heard_age_s", "gauge seconds",
         _stream(lambda one: one.heard_age_s),
         "how long ago anything came from the provider, a Pong too, where the connection can tell",
         "Does the provider hang?"),
        ("heard_limit_seconds", "heard_within_s", "gauge seconds",
         _stream(lambda one: one.heard_within_s),
         "from which age of that on the provider is gone",
         "When does a silence count?"),
        ("record_age_seconds", "record_age_s", "gauge seconds",
         _stream(lambda one: one.record_age_s),
         "how long ago the last record came; in a quiet network it grows",
         "When has something changed last?"),
        ("commit_age_seconds", "commit_age_s", "gauge seconds",
         _stream(lambda one: one.commit_age_s),
         "how long ago a commit was durable",
         "When was something written last?"),
        ("committing_seconds", "committing_s", "gauge seconds",
         _stream(lambda one: one.committing_s),
         "how long the commit under way takes already; 0: there is none",
         "Is a commit stuck in the database?"),
        ("behind_seconds", "behind_s", "gauge seconds", _stream(lambda one: one.behind_s),
         "the greatest age of a change that may be missing (A8)",
         "How old is what the store shows?"),
        ("margin_seconds{mark}", "margin_s", "gauge seconds",
         _stream(lambda one: {"compaction": one.compaction_margin_s,
                              "retention": one.retention_margin_s}),
         "the time left until intermediate states (`compaction`) or ends (`retention`) are lost",
         "How long until something is lost?"),
        ("limit_seconds{mark}", "limit_s", "gauge seconds",
         _stream(lambda one: {"compaction": one.compaction_delay_s,
                              "retention": one.tombstone_retention_s}),
         "what the provider declares as compaction delay and tombstone retention",
         "How much time was there at all?"),
        ("attempt", "attempt", "gauge", _stream(lambda one: one.attempt),
         "the alignment attempt, counted from 1",
         "Was it aligned anew?"),
        ("attempts_unaligned", "attempts_without_alignment", "gauge",
         _stream(lambda one: one.attempts_without_alignment),
         "attempts in a row that came to no alignment (A16)",
         "Does it begin again and again?"),
        ("sweep_held", "sweep_held", "gauge",
         _stream(lambda one: one.phase is Phase.SWEEP_HELD),
         "1 where a sweep waits for a decision (A6)",
         "Does it wait for me?"),
        ("unproven", "unproven", "gauge", _stream(lambda one: one.unproven),
         "entities of which it is not known whether they exist as stored (A17)",
         "What of the copy is not proven?"),
        ("unreadable", "unreadable", "gauge", _stream(lambda one: one.unreadable),
         "records of the attempt that could not be read (A11)",
         "What is missing in the copy?"),
        ("records_total", "records", "counter", _stream(lambda one: one.records),
         "records committed since the consumer started",
         "How much comes?"),
        ("quarantined_total", "quarantined", "counter", _stream(lambda one: one.quarantined),
         "records put into quarantine since the consumer started",
         "Does the provider send what cannot be read?"),
        ("deviations_total", "deviations_counted", "counter",
         _stream(lambda one: sum(one.deviations.values())),
         "departures from the specification since the consumer started (A10)",
         "Does the provider keep to its specification?"),
    )),
    *_figures(Subject.INTAKE, (
        ("listening", "listening", "gauge", _intake(lambda one: bool(one.address)),
         "1 while it listens",
         "Can senders reach it?"),
        ("queued", "queued", "gauge", _intake(lambda one: one.queued),
         "messages that wait for their commit",
         "Does the store keep up?"),
        ("sequences", "sequences", "gauge", _intake(lambda one: one.sequences),
         "sequences that are kept",
         "How many senders and threads are there?"),
        ("held", "held", "gauge", _intake(lambda one: one.held),
         "messages buffered behind gaps, in all sequences",
         "What waits for missing numbers?"),
        ("gap_age_seconds", "gap_age_s", "gauge seconds", _intake(lambda one: one.gap_age_s),
         "for how long the oldest gap of the sequences in memory is known; not shown: none",
         "Is there a gap that never closes?"),
        ("blocked", "blocked_sequences", "gauge", _intake(lambda one: len(one.blocked)),
         "sequences that wait for a decision about a message in quarantine; at most a hundred",
         "Is there a message that nobody can handle?"),
        ("dead", "dead", "gauge", _intake(lambda one: one.dead),
         "messages in the dead letter (S13)",
         "What was accepted and not delivered?"),
        ("dead_age_seconds", "dead_age_s", "gauge seconds", _intake(lambda one: one.dead_age_s),
         "for how long the oldest is there; not shown: there is none",
         "For how long does nobody look after it?"),
        ("accepted_total", "accepted", "counter", _intake(lambda one: one.accepted),
         "messages accepted, each counted once",
         "How much comes?"),
        ("duplicates_total", "duplicates", "counter", _intake(lambda one: one.duplicates),
         "copies of messages that were accepted before",
         "Do senders lose our answers?"),
        ("refused_total", "refused", "counter", _intake(lambda one: one.refused),
         "messages and connections that were refused",
         "Is somebody turned away?"),
        ("delivered_total", "delivered", "counter", _intake(lambda one: one.delivered),
         "messages delivered",
         "How much is done?"),
        ("handler_failures_total", "handler_failures", "counter",
         _intake(lambda one: one.handler_failures),
         "attempts of the handler that failed",
         "Does my handler work?"),
        ("deviations_total", "deviations_counted", "counter",
         _intake(lambda one: sum(one.deviations.values())),
         "departures of the peers from their specification",
         "Do the senders keep to their specification?"),
    )),
)
# fmt: on
"""The table."""


class Sample(msgspec.Struct, frozen=True):
    """One figure of one subject at one time."""

    figure: Figure
    labels: tuple[str, ...]
    """The values of `Figure.labels`."""
    value: float


def samples(healths: Sequence[Health]) -> Iterator[Sample]:
    """All figures that are known, consumer by consumer."""
    for health in healths:
        for names, subject, one in _subjects(health):
            for figure in _BY_SUBJECT[subject]:
                read = figure.read(one)
                if not figure.label:
                    if read is not None:
                        yield Sample(figure, names, float(read))  # type: ignore[arg-type]
                    continue
                assert isinstance(read, Mapping)
                for label, value in read.items():
                    # A word that is not in the vocabulary makes no series.
                    if value is not None and label in figure.values:
                        yield Sample(figure, (*names, str(label)), float(value))


def facts_of(health: Health) -> dict[str, Any]:
    """The figures of a consumer as plain data, each under its `key`, with its faults and streams;
    the errors in words are beside them.
    """
    faults = faults_of([health])
    told: dict[str, Any] = {"consumer": health.consumer, "error": health.error}
    streams: list[dict[str, Any]] = []
    for names, subject, one in _subjects(health):
        figures = {figure.key: _plain(figure, figure.read(one)) for figure in _BY_SUBJECT[subject]}
        match subject:
            case Subject.CONSUMER:
                told |= figures
            case Subject.INTAKE:
                told["intake"] = figures
            case Subject.STREAM:
                errors = {"error": one.stream.last_error, "state": one.stream.freshness.state}
                streams.append({"stream": names[1], **errors, **figures})
    told["faults"] = [{"part": one.part, "stream": one.stream, "text": one.text} for one in faults]
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


def _subjects(health: Health) -> Iterator[tuple[tuple[str, ...], Subject, Any]]:
    """What the figures are read from, with the names of each."""
    faults = faults_of([health])
    name = (health.consumer,)
    yield name, Subject.CONSUMER, _Judged(health, faults)
    if health.intake is not None:
        yield name, Subject.INTAKE, health.intake
    troubled = {one.stream for one in faults}
    for stream in health.streams[:STREAMS_SHOWN]:
        ready = not troubled & {"", stream.stream}
        yield (health.consumer, stream.stream), Subject.STREAM, _JudgedStream(stream, ready)
