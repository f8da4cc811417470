"""Records envelopes and their answers, for their sender to be judged."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Final

from instep.conformance import MeteredRecorder, RequestAnswered, RequestReceived
from instep_http import Response
from instep_soap.envelope import fault_of, read_envelope
from instep_soap.errors import SoapFaultError

__all__ = ["ExchangeRecorder"]

_FIRST_FAULT: Final = 400


class ExchangeRecorder:
    """Gives each envelope and its answer to a recorder, both under a number of its own.

    Args:
        recorder: See `Recordable`.
        now_us: Microseconds since 1970.
    """

    def __init__(self, recorder: MeteredRecorder, now_us: Callable[[], int]) -> None:
        self._recorder, self._now_us = recorder, now_us
        self._numbers = count(1)
        self.takes_next = recorder.takes_next
        """Whether the next envelope is recorded; else it counts as skipped."""

    def received(self, envelope: bytes) -> int:
        """An envelope came, or what was sent as one; returns its number."""
        number = next(self._numbers)
        self._recorder(RequestReceived(self._now_us(), "", number, "", envelope))
        return number

    def answered(self, number: int, response: Response) -> None:
        """It was answered with this."""
        confirmed = response.status < _FIRST_FAULT
        reason = "" if confirmed else _reason(response)
        self._recorder(
            RequestAnswered(self._now_us(), "", number, confirmed, reason, response.body)
        )


def _reason(response: Response) -> str:
    try:
        fault = fault_of(read_envelope(response.body))
    except SoapFaultError:
        fault = None
    if fault is None:
        return str(response.status)
    code = fault.subcode.rpartition("}")[2] or str(fault.fault_code)
    return f"{code}: {fault.message}"
