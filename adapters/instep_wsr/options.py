"""The options of a `wsr` source, read from a table of the configuration and checked by name."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Final

import msgspec

from instep.errors import ConfigurationError
from instep.model.limits import Seconds
from instep.sequencing.settings import SequencerSettings
from instep_soap import SoapOptions, read_soap_options

__all__ = ["DEFAULT_SEQUENCE", "Acknowledge", "Options", "read_options"]

_DAY_S: Final = 86_400.0


class Acknowledge(StrEnum):
    """When a message of an ordered group is acknowledged that came ahead of its turn."""

    RECEIPT = "receipt"
    """When it is durable (Rel16, step 4)."""
    DELIVERY = "delivery"
    """When it is delivered (WS-Reliability 1.1)."""


class Options(SoapOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a `wsr` source listens, what it promises, and where it sends: to the ReplyTo of a message
    or of a PollRequest.
    """

    acknowledge: Acknowledge = Acknowledge.RECEIPT
    """Whether ``receipt`` or ``delivery`` acknowledges a message that came ahead of its turn."""
    persist_duration_s: Seconds | None = None
    """PersistentDuration: how long a message waits at most for those before it, in seconds. Then it
    is reported to its sender by a fault, and removed. None: until its own ExpiryTime.
    """
    max_expiry_s: Seconds = 30 * _DAY_S
    """How far ahead an ExpiryTime may be, because identifiers are remembered until then. A later
    one is refused with InvalidExpiryTime.
    """
    replies: bool = False
    """Whether the response to a message with the reply pattern Response waits for what the handler
    returns, and has it as its body.
    """
    reply_timeout_s: Annotated[float, msgspec.Meta(gt=0.0, le=600.0)] = 20.0
    """How long such a response waits at most, in seconds. A message without its reply is answered
    202, and may come again.
    """
    sequence: SequencerSettings | None = None
    """How many messages of a group may be buffered, how long a group may be idle that states
    nothing itself (`idle_timeout_s`, 30 days), and how long at least an ended one is remembered
    (`keep_ended_s`, a day).
    """


DEFAULT_SEQUENCE: Final = SequencerSettings(
    first_number=0, idle_timeout_s=30 * _DAY_S, keep_ended_s=_DAY_S
)


def read_options(options: Mapping[str, Any], where: str) -> Options:
    """Check and read the table of a source, without connecting. Raises `ConfigurationError`."""
    read = read_soap_options(Options, options, where, sequence=DEFAULT_SEQUENCE)
    _check_sequence(read.sequence or DEFAULT_SEQUENCE, f"{where}.sequence")
    return read


def _check_sequence(settings: SequencerSettings, where: str) -> None:
    for name in _FIXED:
        if getattr(settings, name) != getattr(DEFAULT_SEQUENCE, name):
            raise ConfigurationError(
                "WS-Reliability, or the message, fixes it", where=f"{where}.{name}"
            )
    if not settings.idle_timeout_s:
        raise ConfigurationError(
            "a group that never ends is remembered for ever", where=f"{where}.idle_timeout_s"
        )


_FIXED: Final = (
    "first_number",
    "max_number",
    "ordered",
    "gap_policy",
    "gap_deadline_s",
    "gap_repeat_s",
    "gap_attempts",
    "gap_last_resort",
    "fault_policy",
    "incomplete",
    "acknowledge_buffered",
    "on_timeout",
    "keep_copies_s",
)
"""What `instep_wsr.groups.group_settings` sets, or no message of a group can use."""
