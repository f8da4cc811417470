"""Names the departures from BICEPS and SDPi that the consumer counts."""

from __future__ import annotations

from typing import Final

__all__ = ["DEVIATIONS"]

DEVIATIONS: Final[dict[str, str]] = {
    "number-backwards": "a MessageNumber before the last one (SDPi R0801)",
    "number-missing": "a report without a number in a session that has numbers (SDPi R0801)",
    "number-unreadable": "a MessageNumber that is no positive integer (SDPi, ReportSequence)",
    "version-backwards": "MdibVersion went back within one SequenceId (IEEE 11073-10207, B.2)",
}
"""Kind → its meaning, with the clause of the specification that it departs from."""
