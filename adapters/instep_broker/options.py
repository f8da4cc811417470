"""The options that sources of all brokers share, read from a table and checked by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from instep.config.options import read_table
from instep.errors import ConfigurationError
from instep.model.limits import Count, Seconds
from instep.sequencing.gaps import GapPolicy, LastResort
from instep.sequencing.settings import SequencerSettings
from instep_broker.fields import read_field

__all__ = ["DEFAULT_SEQUENCE", "BrokerOptions", "read_broker_options"]

_MIB: Final = 1024 * 1024

DEFAULT_SEQUENCE: Final = SequencerSettings(
    gap_policy=GapPolicy.WAIT, gap_deadline_s=60.0, gap_repeat_s=60.0, gap_attempts=60
)
"""The missing message has an hour: a broker delivers again what was not acknowledged, and a
publisher that was away publishes it late.
"""


class BrokerOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a message has its number, and how many are under way. An adapter inherits it."""

    number: str
    """The number within the sequence: ``member:number`` of the JSON (``member:order.number`` for
    one within another), ``header:Number``, or ``subject:3``, the third part of the subject.
    """
    scope: str = "subject"
    """The sequence that the number counts in, as `number` is written; ``subject`` for the whole
    subject. There is one numbering, and one order, for each value.
    """
    id: str = "header:Nats-Msg-Id"
    """The publisher's own identifier. A message without one has its place in the broker."""
    sequence: SequencerSettings = DEFAULT_SEQUENCE
    """How gaps are handled, and how many messages may be buffered behind them. A missing message
    has an hour to come; then the sequence fails.
    """
    max_message_bytes: Count = 4 * _MIB
    """Longest body of a message; a longer one is refused."""
    limit_messages: Count = 2_000
    """Most messages that were taken from the broker and are not durable."""
    limit_bytes: Count = 64 * _MIB
    """About how many bytes of messages were taken from the broker and are not durable, at most."""
    retry_s: Seconds = 5.0
    """When the broker delivers a message again that could not be taken, because there was no room
    or the store was unavailable.
    """
    retry_failed_s: Seconds = 60.0
    """When the broker delivers a message again whose sequence has failed: an operator may help it
    on.
    """
    reconnect_initial_s: Seconds = 0.5
    """The longest wait before the second attempt to connect. The wait doubles with each failure."""
    reconnect_max_s: Seconds = 30.0
    """The wait between attempts to connect grows to this at most. A random part of each wait, up to
    half of it, is left out.
    """


OptionsT = TypeVar("OptionsT", bound=BrokerOptions)


def read_broker_options(
    kind: type[OptionsT],
    options: Mapping[str, Any],
    where: str,
    *,
    required: Mapping[str, str],
    redelivers_after_s: str,
) -> OptionsT:
    """Check and read the table of a source. Raises `ConfigurationError`.

    Args:
        kind: The struct of its options.
        options: The table.
        where: Its place in the configuration, for errors.
        required: Key → an example, of the keys that must be there besides `number`.
        redelivers_after_s: The option that says when the broker delivers again.
    """
    table = {name: value for name, value in options.items() if name != "kind"}
    if isinstance(table.get("sequence"), Mapping):
        given = {**msgspec.to_builtins(DEFAULT_SEQUENCE), **table["sequence"]}
        table["sequence"] = read_table(SequencerSettings, given, f"{where}.sequence")
    read = read_table(kind, table, where, required={**required, "number": "member:number"})
    for name in ("number", "scope", "id"):
        read_field(getattr(read, name), f"{where}.{name}")
    _check_sequence(read.sequence, f"{where}.sequence")
    if read.sequence.gap_deadline_s <= getattr(read, redelivers_after_s):
        raise ConfigurationError(
            f"a gap ends before the broker delivers again what was not answered"
            f" ({redelivers_after_s})",
            where=f"{where}.sequence.gap_deadline_s",
            hint=f"more than {getattr(read, redelivers_after_s):g}",
        )
    return read


def _check_sequence(settings: SequencerSettings, where: str) -> None:
    asks = settings.gap_policy in (GapPolicy.RESEND, GapPolicy.REALIGN)
    if asks or settings.gap_last_resort is LastResort.REALIGN:
        raise ConfigurationError(
            "a broker cannot be asked for a message that was not published",
            where=where,
            hint="wait, skip or fail",
        )
