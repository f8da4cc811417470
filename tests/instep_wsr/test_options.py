"""The options of a `wsr` source are checked by name, before anything is connected."""

from __future__ import annotations

from typing import Any

import pytest

from instep.errors import ConfigurationError
from instep_wsr import Acknowledge, WsrListener, read_options
from instep_wsr.plugin import source

HERE = {"listen": "127.0.0.1:0/rm"}


@pytest.mark.parametrize(
    ("given", "where"),
    [
        ({}, "listen"),
        ({"listen": "ftp://127.0.0.1/rm"}, "listen"),
        ({"listen": "https://127.0.0.1/rm"}, "tls.cert"),
        ({**HERE, "acknowledge": "sometime"}, "acknowledge"),
        ({**HERE, "allow_endpoints": ["https://a.example/path"]}, "allow_endpoints[0]"),
        ({**HERE, "persist_duration_s": 0}, "persist_duration_s"),
        ({**HERE, "max_expiry_s": -1}, "max_expiry_s"),
        ({**HERE, "sequence": {"first_number": 1}}, "sequence.first_number"),
        ({**HERE, "sequence": {"ordered": False}}, "sequence.ordered"),
        ({**HERE, "sequence": {"fault_policy": "wait"}}, "sequence.fault_policy"),
        ({**HERE, "sequence": {"acknowledge_buffered": False}}, "sequence.acknowledge_buffered"),
        ({**HERE, "sequence": {"idle_timeout_s": 0}}, "sequence.idle_timeout_s"),
        ({**HERE, "sequence": {"gap": 1}}, "gap"),
        ({**HERE, "reply": []}, "reply"),
    ],
)
def test_what_cannot_work_is_named(given: dict[str, Any], where: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        source.check({"kind": "wsr", **given}, "consumers[0].source")
    assert where in str(caught.value)


def test_the_defaults_of_a_group_stay_where_one_is_changed() -> None:
    changed = read_options({**HERE, "sequence": {"limit_messages": 7}}, "x").sequence
    assert changed is not None
    assert (changed.limit_messages, changed.first_number) == (7, 0)
    assert changed.idle_timeout_s > 0


def test_the_defaults_are_those_of_the_standard() -> None:
    options = read_options(HERE, "x")
    assert options.acknowledge is Acknowledge.RECEIPT
    assert options.persist_duration_s is None
    assert options.listen == "http://127.0.0.1:0/rm"


def test_a_group_is_bounded_with_the_others_of_its_sender() -> None:
    listener = WsrListener(read_options(HERE, "x"))
    assert listener.peer_of("mid:1@a.example") == listener.peer_of("mid:2@a.example") == "a.example"
