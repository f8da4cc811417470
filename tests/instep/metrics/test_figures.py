"""The table of figures, and what is made of it."""

import re

import msgspec
import pytest

from instep.metrics import FIGURES, facts_of, samples
from instep.metrics.figures import STREAMS_SHOWN, FigureKind, Unit
from tests.instep.metrics.test_readiness import STREAM, health

NAME = re.compile(r"instep_(consumer|stream|intake|lake|table)_[a-z]+(_[a-z]+)*")


@pytest.mark.parametrize("figure", FIGURES, ids=lambda one: one.name)
def test_each_figure_is_named_as_prometheus_wants_it_and_answers_a_question(figure: object) -> None:
    (one,) = [each for each in FIGURES if each is figure]
    assert NAME.fullmatch(one.name)
    assert one.name.endswith("_total") == (one.kind is FigureKind.COUNTER)
    assert one.name.endswith("_seconds") == (one.unit is Unit.SECONDS)
    assert one.meaning
    assert one.question.endswith("?")
    closed = bool(one.values) or one.label == "rule"
    assert bool(one.label) == closed, "a label without a vocabulary"


def test_no_name_is_given_twice() -> None:
    assert len({one.name for one in FIGURES}) == len(FIGURES)
    keys = [(one.subject, one.key) for one in FIGURES]
    assert len(set(keys)) == len(keys)


def test_no_text_of_a_peer_makes_a_series() -> None:
    stranger = 'x"}\n{evil="1'
    one = msgspec.structs.replace(STREAM, deviations={stranger: 4}, last_error=stranger)
    found = list(samples([health(one, error=stranger)]))
    assert all(stranger not in label for sample in found for label in (*sample.names, sample.label))
    assert [s.value for s in found if s.figure.name == "instep_stream_deviations_total"] == [4.0]


def test_the_series_are_bounded() -> None:
    streams = tuple(
        msgspec.structs.replace(STREAM, stream=f"s{number}") for number in range(STREAMS_SHOWN + 9)
    )
    found = list(samples([health(streams=streams)]))
    shown = {sample.names[1] for sample in found if sample.figure.subject == "stream"}
    assert len(shown) == STREAMS_SHOWN
    assert [s.value for s in found if s.figure.name == "instep_consumer_streams"] == [
        STREAMS_SHOWN + 9
    ]


def test_what_is_not_known_is_not_shown() -> None:
    unknown = msgspec.structs.replace(STREAM, tombstone_retention_s=None, behind_s=1.0)
    found = {
        (s.figure.name, *s.names, s.label): s.value
        for s in samples([health(unknown, store_age_s=None)])
    }
    margin = ("instep_stream_margin_seconds", "east", "network")
    assert found[(*margin, "compaction")] == 599.0
    assert (*margin, "retention") not in found
    assert ("instep_consumer_store_answer_age_seconds", "east", "") not in found
    assert found["instep_stream_phase", "east", "network", "aligned"] == 1.0


def test_the_facts_have_every_figure_under_its_key() -> None:
    facts = facts_of(health(msgspec.structs.replace(STREAM, connected=False, last_error="why")))
    (stream,) = facts["streams"]
    assert set(stream) >= {one.key for one in FIGURES if one.subject == "stream"}
    assert (stream["phase"], stream["error"], stream["ready"]) == ("aligned", "why", False)
    assert facts["faults"] == [
        {"part": "provider", "stream": "network", "text": "aligned, but not connected: why"}
    ]
    assert msgspec.json.encode(facts)
