"""The options of a `wsrm` source are checked by name, before anything is connected."""

from __future__ import annotations

from typing import Any

import pytest

from instep.errors import ConfigurationError
from instep.sequencing import LastResort
from instep_wsrm import WsrmListener, read_options
from instep_wsrm.options import sequence_settings
from instep_wsrm.plugin import source
from instep_wsrm.sequences import new_identifier, peer_of

HERE = {"listen": "127.0.0.1:0/rm"}
DISCARD = {"incomplete": "discard"}


@pytest.mark.parametrize(
    ("given", "where"),
    [
        ({}, "listen"),
        ({"listen": "ftp://127.0.0.1/rm"}, "listen"),
        ({"listen": "https://127.0.0.1/rm"}, "tls.cert"),
        ({**HERE, "delivery_assurance": "Sometimes"}, "delivery_assurance"),
        ({**HERE, "allow_endpoints": ["https://a.example/path"]}, "allow_endpoints[0]"),
        ({**HERE, "allow_endpoints": ["a.example"]}, "allow_endpoints[0]"),
        ({**HERE, "sequence": {"first_number": 0}}, "first_number"),
        ({**HERE, "sequence": {"acknowledge_buffered": False}}, "acknowledge_buffered"),
        ({**HERE, "sequence": {"gap_policy": "realign"}}, "sequence"),
        ({**HERE, "sequence": {"incomplete": "fault"}}, "sequence.incomplete"),
        ({**HERE, "in_order": False, "sequence": DISCARD}, "sequence.incomplete"),
        ({**HERE, "delivery_assurance": "AtMostOnce", "sequence": DISCARD}, "sequence.incomplete"),
        ({**HERE, "sequence": {**DISCARD, "gap_policy": "skip"}}, "sequence.incomplete"),
        ({**HERE, "sequence": {"gap": 1}}, "gap"),
        ({**HERE, "reply": []}, "reply"),
    ],
)
def test_what_cannot_work_is_named(given: dict[str, Any], where: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        source.check({"kind": "wsrm", **given}, "consumers[0].source")
    assert where in str(caught.value)


def test_the_defaults_of_a_sequence_stay_where_one_is_changed() -> None:
    changed = sequence_settings(read_options({**HERE, "sequence": {"gap_attempts": 7}}, "x"))
    default = sequence_settings(read_options(HERE, "x"))
    assert changed.gap_attempts == 7
    assert changed.gap_deadline_s == default.gap_deadline_s
    assert changed.keep_ended_s == default.keep_ended_s


@pytest.mark.parametrize(
    ("assurance", "last_resort"),
    [
        ("ExactlyOnce", LastResort.FAIL),
        ("AtLeastOnce", LastResort.FAIL),
        ("AtMostOnce", LastResort.SKIP),
    ],
)
def test_the_assurance_sets_what_ends_a_gap(assurance: str, last_resort: LastResort) -> None:
    options = read_options({**HERE, "delivery_assurance": assurance, "in_order": False}, "x")
    settings = sequence_settings(options)
    assert (settings.gap_last_resort, settings.ordered) == (last_resort, False)


def test_the_name_of_a_sequence_tells_its_peer_and_nothing_else() -> None:
    first, second = new_identifier("192.0.2.1"), new_identifier("192.0.2.1")
    assert first != second
    assert first.startswith("urn:uuid:")
    assert len(first) == len("urn:uuid:") + 36
    assert peer_of(first) == peer_of(second) != peer_of(new_identifier("192.0.2.2"))
    listener = WsrmListener(read_options(HERE, "x"))
    assert listener.peer_of(first) == peer_of(first)
