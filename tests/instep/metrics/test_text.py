"""The text of the figures, read by the library of Prometheus, is what the figures are."""

import math

import msgspec
import pytest

from instep.metrics.figures import samples
from instep.metrics.text import text_of
from tests.instep.metrics.test_readiness import STREAM, health

PARSER = pytest.importorskip("prometheus_client.parser")

ODD = 'a "b" \\ c\nd'


def test_the_text_holds_each_value_and_name() -> None:
    streams = [
        STREAM,
        msgspec.structs.replace(STREAM, stream=ODD, heard_age_s=math.inf, behind_s=1 / 3),
        msgspec.structs.replace(STREAM, stream="wrong", wrong={"bogus": 12_345_678}),
    ]
    healths = [health(one, consumer=f"c{number}") for number, one in enumerate(streams)]
    read = {
        (sample.name, *sample.labels.values()): sample.value
        for family in PARSER.text_string_to_metric_families(text_of(healths).decode())
        for sample in family.samples
    }
    told = {
        (one.figure.name, *one.names, *filter(None, [str(one.label)])): float(one.value)
        for one in samples(healths)
    }
    assert read.keys() == told.keys()
    assert read["instep_stream_heard_age_seconds", "c1", ODD] == math.inf
    assert read["instep_stream_entities_wrong", "c2", "wrong", "bogus"] == 12_345_678
    for name, value in told.items():
        assert read[name] == pytest.approx(value, abs=0.0005)
