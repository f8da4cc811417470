"""Seeds of the simulated SOAP protocols: nothing lost, doubled, out of order or claimed early."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from instep.sequencing import SequencerSettings
from instep_wsr import known_groups, receiver
from instep_wsr.groups import group_settings, reply_to_message
from instep_wsr.wire.messages import GroupReply
from tests.simulation.soap.simulation import SoapFailedError, simulate_soap

SEEDS = 20
AT_ONCE = 5
WSR = range(5, 9)
"""Seeds with groups of WS-Reliability among them."""


def all_of(seeds: range) -> None:
    for seed in seeds:
        simulate_soap(seed)


@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_seeds(first: int) -> None:
    all_of(range(first, first + AT_ONCE))


def test_a_seed_makes_the_same_story_each_time() -> None:
    assert simulate_soap(3) == simulate_soap(3)


def test_an_acknowledgement_of_what_is_not_durable_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def too_much(*given: Any, **named: Any) -> GroupReply:
        reply = reply_to_message(*given, **named)
        wider = [(low, high + 1) for low, high in reply.acknowledged]
        return msgspec.structs.replace(reply, acknowledged=wider)

    monkeypatch.setattr(receiver, "reply_to_message", too_much)
    with pytest.raises(SoapFailedError, match="durable is"):
        all_of(WSR)


def test_an_order_that_is_not_kept_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def unordered(*given: Any) -> SequencerSettings:
        return msgspec.structs.replace(group_settings(*given), ordered=False)

    monkeypatch.setattr(known_groups, "group_settings", unordered)
    with pytest.raises(SoapFailedError, match="disordered"):
        all_of(WSR)
