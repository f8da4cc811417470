"""The options of a `wsrm` source, read from a table of the configuration and checked by name."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Final

import msgspec

from instep.config.options import read_table
from instep.errors import ConfigurationError
from instep.model.limits import Count
from instep.sequencing.gaps import GapPolicy, LastResort
from instep.sequencing.settings import SequencerSettings, TimeoutBehavior
from instep_http import ListenOptions, check_files, check_url, read_listen_table

__all__ = [
    "Assurance",
    "Options",
    "read_options",
    "sequence_settings",
]

_DAY_S: Final = 86_400.0


class Assurance(StrEnum):
    """How often a message is delivered (WS-RM 1.1 section 2, delivery assurances)."""

    AT_MOST_ONCE = "AtMostOnce"
    """Never twice. A number that does not come in time is given up, and reported as lost."""
    AT_LEAST_ONCE = "AtLeastOnce"
    """At least once. It is delivered once, which is what EXACTLY_ONCE does."""
    EXACTLY_ONCE = "ExactlyOnce"
    """Once. A sequence whose missing number never comes fails."""


class Options(ListenOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a `wsrm` source listens, what it promises, and where it sends."""

    delivery_assurance: Assurance = Assurance.EXACTLY_ONCE
    """How often a message is delivered …"""
    in_order: bool = True
    """… and whether in the order of its number."""
    allow_endpoints: tuple[str, ...] = ()
    """The origins (``https://source.example.org:8443``) that an AcksTo, a ReplyTo or the Endpoint
    of an Offer may name: nothing is sent to any other. Without one, only the response of a request
    carries acknowledgements and replies.
    """
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
    max_elements: Count = 100_000
    """Most XML elements of an envelope."""


_SEQUENCE: Final = SequencerSettings(
    gap_deadline_s=30.0,
    gap_repeat_s=30.0,
    gap_attempts=120,
    idle_timeout_s=_DAY_S,
    on_timeout=TimeoutBehavior.TERMINATE,
    keep_ended_s=600.0,
)


def read_options(options: Mapping[str, Any], where: str) -> Options:
    """Check and read the table of a source, without connecting. Raises `ConfigurationError`."""
    table = {name: value for name, value in options.items() if name != "kind"}
    if isinstance(table.get("sequence"), Mapping):
        given = {**msgspec.to_builtins(_SEQUENCE), **table["sequence"]}
        table["sequence"] = read_table(SequencerSettings, given, f"{where}.sequence")
    table = read_listen_table(table, where, example="http://127.0.0.1:9555/rm")
    read = read_table(Options, table, where)
    _check(read, where)
    return read


def sequence_settings(options: Options) -> SequencerSettings:
    """The settings of a sequence, with what the delivery assurance fixes."""
    settings = msgspec.structs.replace(options.sequence or _SEQUENCE, ordered=options.in_order)
    if options.delivery_assurance is Assurance.AT_MOST_ONCE:
        settings = msgspec.structs.replace(settings, gap_last_resort=LastResort.SKIP)
    return settings


def _check(options: Options, where: str) -> None:
    options.check_listen(where)
    for place, origin in enumerate(options.allow_endpoints):
        at = f"{where}.allow_endpoints[{place}]"
        endpoint = check_url(origin, ("http", "https"), at)
        if endpoint.path not in ("", "/") or endpoint.query_string or endpoint.fragment:
            raise ConfigurationError("an origin has no path", where=at)
    _check_sequence(sequence_settings(options), f"{where}.sequence")
    check_files(options.tls, f"{where}.tls")


def _check_sequence(settings: SequencerSettings, where: str) -> None:
    if settings.first_number != 1:
        raise ConfigurationError("MessageNumber counts from 1", where=f"{where}.first_number")
    if not settings.acknowledge_buffered:
        raise ConfigurationError(
            "WS-RM acknowledges a message when it is received",
            where=f"{where}.acknowledge_buffered",
        )
    if settings.gap_policy is GapPolicy.REALIGN or settings.gap_last_resort is LastResort.REALIGN:
        raise ConfigurationError(
            "WS-RM has no other way to obtain the state of lost messages",
            where=where,
            hint="resend, wait, skip or fail",
        )
