"""All rules of TR-548 that a client can see held or broken, of v1.1 and of v3.2."""

from __future__ import annotations

from functools import partial

from instep.conformance import RuleBook
from instep_tapi.conformance import alarms, connections, log, network, records, streams
from instep_tapi.conformance.observer import TapiObserver
from instep_tapi.conformance.unjudged import UNJUDGED
from instep_tapi.conformance.yang import YangModules, yang_rules

__all__ = ["tapi_rules"]


def tapi_rules(edition: str = "", yang: YangModules | None = None) -> RuleBook:
    """The rules of TAPI streaming. `edition`: 2.1.3 or 2.6; without one each stream shows its own.
    `yang`: the modules by which bodies are judged; without them nothing of that is seen.
    """
    return RuleBook(
        "tapi",
        "TAPI streaming (TR-548)",
        (
            *streams.RULES,
            *connections.RULES,
            *records.RULES,
            *alarms.RULES,
            *log.RULES,
            *network.RULES,
            *yang_rules(yang),
        ),
        partial(TapiObserver, edition),
        UNJUDGED,
    )
