"""The options of a `wsrm` source, read from a table of the configuration and checked by name."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Final

import msgspec

from instep.errors import ConfigurationError
from instep.sequencing.gaps import GapPolicy, LastResort
from instep.sequencing.risks import risks_of
from instep.sequencing.settings import IncompleteBehavior, SequencerSettings, TimeoutBehavior
from instep_soap import SoapOptions, read_soap_options

__all__ = ["DEFAULT_SEQUENCE", "Assurance", "Options", "read_options", "risks", "sequence_settings"]

_DAY_S: Final = 86_400.0


class Assurance(StrEnum):
    """How often a message is delivered (WS-RM 1.1 section 2, delivery assurances)."""

    AT_MOST_ONCE = "AtMostOnce"
    """Never twice. A number that does not come in time is given up, and reported as lost."""
    AT_LEAST_ONCE = "AtLeastOnce"
    """At least once. It is delivered once, which is what EXACTLY_ONCE does."""
    EXACTLY_ONCE = "ExactlyOnce"
    """Once. A sequence whose missing number never comes fails."""


class Options(SoapOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a `wsrm` source listens, what it promises, and where it sends: to an AcksTo, a ReplyTo
    or the Endpoint of an Offer.
    """

    delivery_assurance: Assurance = Assurance.EXACTLY_ONCE
    """How often a message is delivered."""
    in_order: bool = True
    """Whether messages are delivered in the order of their numbers."""
    reply_actions: tuple[str, ...] = ()
    """The Actions of requests whose response waits for what the handler returns; ``*``: all."""
    reply_timeout_s: Annotated[float, msgspec.Meta(gt=0.0, le=600.0)] = 20.0
    """Longest wait for it. A request without its reply is answered 202, and may come again."""
    accept_offers: bool = True
    """Whether the sequence that a source offers for the replies is accepted."""
    max_expires_s: Annotated[float, msgspec.Meta(gt=0.0, le=1e9)] = 30 * _DAY_S
    """How long a sequence lasts at most, whatever its source asks for."""
    acknowledgement_interval_s: Annotated[float, msgspec.Meta(ge=0.0, le=3600.0)] = 0.2
    """The delay, in seconds, of an acknowledgement to an AcksTo that is an address, unless it was
    asked for: one for all messages of that time. A response carries one at once.
    """
    sequence: SequencerSettings | None = None
    """How gaps are handled, and how many messages may be buffered behind them. None: a source has
    an hour to send a missing message again; an idle sequence ends after a day, and an ended one is
    remembered for ten minutes.
    """


DEFAULT_SEQUENCE: Final = SequencerSettings(
    gap_deadline_s=30.0,
    gap_repeat_s=30.0,
    gap_attempts=120,
    idle_timeout_s=_DAY_S,
    on_timeout=TimeoutBehavior.TERMINATE,
    keep_ended_s=600.0,
)


def read_options(options: Mapping[str, Any], where: str) -> Options:
    """Check and read the table of a source, without connecting. Raises `ConfigurationError`."""
    read = read_soap_options(Options, options, where, sequence=DEFAULT_SEQUENCE)
    _check_sequence(sequence_settings(read), f"{where}.sequence")
    return read


def sequence_settings(options: Options) -> SequencerSettings:
    """The settings of a sequence, with what the delivery assurance fixes."""
    settings = msgspec.structs.replace(
        options.sequence or DEFAULT_SEQUENCE, ordered=options.in_order
    )
    if options.delivery_assurance is Assurance.AT_MOST_ONCE:
        settings = msgspec.structs.replace(settings, gap_last_resort=LastResort.SKIP)
    return settings


def risks(options: Options) -> list[str]:
    """What may be lost with these options."""
    return risks_of(sequence_settings(options))


def _check_sequence(settings: SequencerSettings, where: str) -> None:
    if settings.first_number != 1:
        raise ConfigurationError("MessageNumber counts from 1", where=f"{where}.first_number")
    if not settings.acknowledge_buffered:
        raise ConfigurationError(
            "WS-RM acknowledges a message when it is received",
            where=f"{where}.acknowledge_buffered",
        )
    if settings.incomplete is IncompleteBehavior.FAULT:
        raise ConfigurationError(
            "WS-RM has no fault for a message that was acknowledged",
            where=f"{where}.incomplete",
            hint="deliver or discard",
        )
    skips = settings.gap_policy is GapPolicy.SKIP or settings.gap_last_resort is LastResort.SKIP
    if settings.incomplete is IncompleteBehavior.DISCARD and (skips or not settings.ordered):
        raise ConfigurationError(
            "DiscardFollowingFirstGap, but messages are delivered behind a gap",
            where=f"{where}.incomplete",
            hint="deliver; discard needs in_order, and another assurance than AtMostOnce",
        )
    if settings.gap_policy is GapPolicy.REALIGN or settings.gap_last_resort is LastResort.REALIGN:
        raise ConfigurationError(
            "WS-RM has no other way to obtain the state of lost messages",
            where=where,
            hint="resend, wait, skip or fail",
        )
