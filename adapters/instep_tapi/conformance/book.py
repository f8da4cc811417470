"""All rules of TR-548 that a client can see held or broken, of v1.1 and of v3.2."""

from __future__ import annotations

from functools import partial

from instep.conformance import RuleBook
from instep_tapi.conformance import alarms, log, network, records, streams
from instep_tapi.conformance.observer import TapiObserver

__all__ = ["tapi_rules"]


def tapi_rules(edition: str = "", *, keeps_history: bool = True) -> RuleBook:
    """The rules of TAPI streaming. `edition`: 2.1.3 or 2.6; without one each stream shows its own.
    `keeps_history`: whether readings are remembered to be compared, up to 120,000 records a stream.
    """
    return RuleBook(
        "tapi",
        "TAPI streaming (TR-548)",
        (*streams.RULES, *records.RULES, *alarms.RULES, *log.RULES, *network.RULES),
        partial(TapiObserver, edition, keeps_history=keeps_history),
    )
