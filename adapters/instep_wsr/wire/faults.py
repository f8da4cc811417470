"""The faults of WS-Reliability as errors: raised where a header is refused."""

from __future__ import annotations

from collections.abc import Sequence

from instep.errors import InstepError
from instep.sequencing.transitions import Refusal
from instep_soap import FaultCode, SoapFaultError
from instep_wsr.wire.messages import GroupReply
from instep_wsr.wire.names import RmFaultCode, wsr_name

__all__ = ["RmFaultError", "code_of_fault", "code_of_refusal", "not_available", "soap_fault"]

_RETRY_AFTER_S = 1


class RmFaultError(InstepError):
    """A header is answered with an RM fault.

    Args:
        code: Which one.
        reason: The text for a person; it is not sent where a Response states the fault.
        group_id: The group of the message; empty: it is unknown.
        number: The number of the message; None: it has none, or it is unknown.
        also: What the group reports beside it, `(low, high, code)`.
    """

    code = "rm-fault"

    def __init__(
        self,
        code: RmFaultCode,
        reason: str,
        group_id: str = "",
        number: int | None = None,
        also: Sequence[tuple[int, int, RmFaultCode]] = (),
    ) -> None:
        super().__init__(reason, fault=code.value)
        self.fault = code
        self.group_id = group_id
        self.number = number
        self.also = list(also)

    def reply(self) -> GroupReply | None:
        """The reply that states the fault; None: no Response can, because the group is unknown."""
        if not self.group_id:
            return None
        number, faults = self.number or 0, self.also.copy()
        if not any(low <= number <= high for low, high, _ in faults):
            faults.append((number, number, self.fault))
        return GroupReply(self.group_id, self.number is not None, faults=faults)


def soap_fault(error: RmFaultError) -> SoapFaultError:
    """The SOAP fault for a header whose group is unknown: no Response can name it."""
    return SoapFaultError(FaultCode.SENDER, error.message, subcode=wsr_name(error.fault))


def not_available(reason: str) -> SoapFaultError:
    """Nothing is accepted now; the same message may be sent again (503)."""
    return SoapFaultError(
        FaultCode.RECEIVER,
        reason,
        subcode=wsr_name(RmFaultCode.MESSAGE_PROCESSING_FAILURE),
        status=503,
        retry_after_s=_RETRY_AFTER_S,
    )


def code_of_refusal(refusal: Refusal) -> RmFaultCode:
    """The fault for a message that its group refuses."""
    match refusal:
        case Refusal.EXPIRED:
            return RmFaultCode.INVALID_EXPIRY_TIME
        case Refusal.OUT_OF_RANGE:
            return RmFaultCode.INVALID_MESSAGE_ID
        case Refusal.BEYOND_LAST | Refusal.OUT_OF_REACH:
            return RmFaultCode.INVALID_MESSAGE_PARAMETERS
        case Refusal.CLOSED | Refusal.FAILED | Refusal.TERMINATED:
            return RmFaultCode.GROUP_ABORTED
        case Refusal.GIVEN_UP | Refusal.CANCELLED:
            return RmFaultCode.PERMANENT_PROCESSING_FAILURE
        case _:
            return RmFaultCode.MESSAGE_PROCESSING_FAILURE


def code_of_fault(reason: Refusal) -> RmFaultCode:
    """The fault for a message that was kept and will not be delivered (S6)."""
    if reason is Refusal.EXPIRED:
        # The same message cannot come again in time.
        return RmFaultCode.PERMANENT_PROCESSING_FAILURE
    return code_of_refusal(reason)
