"""Captured sequences of a real source, judged: what it is known for is found, and nothing else.

The source is gSOAP's; some scenarios make it break a duty, which their names say.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from instep.conformance import Event, RequestAnswered, RequestReceived, judge
from instep_wsrm.conformance import wsrm_rules
from tests.instep_wsrm.rm_kit import SHARED, shared

SCENARIOS = (
    sorted(one.name for one in (SHARED / "wire").iterdir()) if SHARED.is_dir() else ["absent"]
)
NOT_UNDERSTOOD = "must-understand"
"""Of each message of WS-RM 1.1."""
TOLD_TO = {
    "afterclose11": {"last-stated", "none-after-close"},
    "badseq10": {"created"},
    "badseq11": {"created"},
    "gsoap_server_fault10": {"created"},
    "gsoap_server_fault11": {"created"},
    "resendafter11": {"none-after-close"},
    "skip11": {"sent-again"},
}
"""What a scenario makes it do."""
OFFERS_AN_ENDPOINT = {"gsoap10_echo_gsoap_server"}
"""With WS-RM 1.0, whose schema has none."""
CREATES_ONLY = {"refuse11", "refuse11_soap11"}
_CODE = re.compile(rb"(?:Value|faultcode|FaultCode)[^>]*>\s*(?:\w+:)?(\w+)\s*<")


def events_of(scenario: Path) -> list[Event]:
    """The requests of a scenario, each with its answer."""
    events: list[Event] = []
    for request in sorted(scenario.glob("*_request.http")):
        number = int(request.name[:2])
        at_us = number * 1_000_000
        sent = _parts(request)[1]
        events.append(RequestReceived(at_us, "", number, "", sent))
        answers = list(scenario.glob(f"{number:02}_*_response.http"))
        for answer in answers:
            head, content = _parts(answer)
            codes = [code.decode() for code in _CODE.findall(content)]
            reason = f"{codes[-1]}: as captured" if codes else ""
            confirmed = head.split()[1].startswith(b"2")
            events.append(RequestAnswered(at_us + 1_000, "", number, confirmed, reason, content))
    return events


def _parts(file: Path) -> tuple[bytes, bytes]:
    head, _, content = file.read_bytes().partition(b"\r\n\r\n")
    return head, content


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_only_what_a_source_is_known_for_is_found(scenario: str) -> None:
    events = events_of(shared() / "wire" / scenario)
    expected = set(TOLD_TO.get(scenario, set()))
    if "10" not in scenario and scenario not in CREATES_ONLY:
        expected.add(NOT_UNDERSTOOD)
    if scenario in OFFERS_AN_ENDPOINT:
        expected.add("offer")
    report = judge(wsrm_rules(), events)
    found = {one.rule.removeprefix("wsrm-"): one.reason for one in report.broken}
    assert found.keys() == expected, found
    assert report.messages
