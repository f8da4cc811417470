"""The options of a `didcomm` source, read from a table of the configuration and checked by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from instep.config.options import read_table
from instep.errors import ConfigurationError
from instep.model.limits import Count
from instep.sequencing.gaps import GapPolicy, LastResort
from instep.sequencing.outbox import OutboxSettings
from instep.sequencing.risks import risks_of
from instep.sequencing.settings import SequencerSettings
from instep_didcomm.wire.pack import Packing
from instep_didcomm.wire.protocols import Protocol
from instep_http import (
    ListenOptions,
    check_files,
    check_url,
    read_listen_table,
)

__all__ = [
    "Options",
    "Peer",
    "load_did_documents",
    "read_options",
    "risks",
]

_OR_ONE = msgspec.Meta(extra_json_schema={"orOne": True})
_IDLE_S = 30 * 86_400.0
DEFAULT_SEQUENCE: Final = SequencerSettings(
    gap_deadline_s=30.0, gap_repeat_s=300.0, gap_attempts=288, idle_timeout_s=_IDLE_S
)
"""A sender that backs off tries again for hours: a gap has a day before its sequence fails."""


class Peer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The endpoint of a peer; takes precedence over its DID document."""

    did: str
    """The DID of the peer."""
    endpoint: str
    """An http(s) URL."""


class Options(ListenOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a `didcomm` source listens, which senders it accepts, and how it answers."""

    did: str | None = None
    """Our DID; None: the DID of the first secret key."""
    secrets_file: str | None = None
    """A file with our secret keys: a JWK set whose ``kid`` are DID URLs. `secrets_env` is the other
    way.
    """
    secrets_env: str | None = None
    """The environment variable that holds our secret keys, in place of `secrets_file`."""
    did_documents: Annotated[tuple[str, ...], _OR_ONE] = ()
    """Files with DID documents of peers (one document, or a list), for DIDs that do not contain
    their keys as did:key and did:peer do.
    """
    peers: tuple[Peer, ...] = ()
    """The endpoints of peers."""
    reply_to_documents: bool = True
    """Send to the endpoint that a peer's DID document states, where `peers` does not name it."""
    allow_private_endpoints: bool = False
    """Whether such an endpoint may be on this machine or in a private network."""
    protocols: tuple[Protocol, ...] = ()
    """Which protocols use `sender_order`; the first that fits counts, others are not sequenced."""
    require_authenticated: bool | None = None
    """Whether a `from` that no key proves is refused. None: it is if there are secret keys."""
    max_age_s: Annotated[float, msgspec.Meta(gt=0.0, le=1e9)] | None = None
    """Refuse an unsequenced message whose `created_time` is longer ago, or missing. Its copies are
    known by its id, and the ids of the last million are remembered: without this bound, or an
    `expires_time` of its sender, an older one can be replayed. None: of any age.
    """
    packing: Packing | None = None
    """The packing of our messages; None: authcrypt with secret keys, plain without."""
    sequence: SequencerSettings = DEFAULT_SEQUENCE
    """How gaps are handled, and how many messages may be buffered behind them. A missing message
    is asked for after 30 seconds, then every five minutes for a day; then the sequence fails, and
    keeps what it has. A thread in which nothing came for 30 days (`idle_timeout_s`) is closed, and
    later forgotten.
    """
    outbox: OutboxSettings = OutboxSettings()
    """When our own messages are sent again, and how many are kept."""
    ack_delay_s: Annotated[float, msgspec.Meta(ge=0.0, le=3600.0)] = 0.3
    """The delay, in seconds, of the `received_orders` for peers that ask for them: one answer for
    all messages of that time.
    """
    send_attempts: Count = 3
    """Number of POSTs of one delivery to an unreachable endpoint; the outbox sends again later."""


def read_options(options: Mapping[str, Any], where: str) -> Options:
    """Check and read the table of a source, without connecting. Raises `ConfigurationError`."""
    table = {name: value for name, value in options.items() if name != "kind"}
    if isinstance(table.get("did_documents"), str):
        table["did_documents"] = [table["did_documents"]]
    table = _with_defaults(table)
    if isinstance(table.get("protocols"), list | tuple):
        table["protocols"] = [_with_defaults(protocol) for protocol in table["protocols"]]
    for name, struct in (("sequence", SequencerSettings), ("outbox", OutboxSettings)):
        if name in table:
            table[name] = read_table(struct, table[name], f"{where}.{name}")
    table = read_listen_table(table, where, example="http://127.0.0.1:9555/didcomm")
    read = read_table(Options, table, where)
    _check(read, where)
    return read


def _with_defaults(table: Any) -> Any:
    """A table whose sequences have our defaults, which are not those of the core."""
    if isinstance(table, dict) and isinstance(table.get("sequence"), dict):
        given = msgspec.to_builtins(DEFAULT_SEQUENCE)
        return {**table, "sequence": {**given, **table["sequence"]}}
    return table


def risks(options: Options) -> list[str]:
    """What may be lost with these options."""
    chosen = [options.sequence, *[one.sequence for one in options.protocols if one.sequence]]
    found = [risk for settings in chosen for risk in risks_of(settings)]
    if not (options.did or options.secrets_file or options.secrets_env):
        found.append(
            "no sender can be told: a receiver without did or secrets_file sends neither requests "
            "to resend nor problem reports"
        )
    return list(dict.fromkeys(found))


def load_did_documents(options: Options, where: str) -> list[dict[str, Any]]:
    """The DID documents in the files of `did_documents`. Raises `ConfigurationError`."""
    documents: list[dict[str, Any]] = []
    for path in options.did_documents:
        try:
            read = msgspec.json.decode(Path(path).read_bytes())
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ConfigurationError(
                f"no DID document in {path}: {type(error).__name__}", where=f"{where}.did_documents"
            ) from None
        for document in read if isinstance(read, list) else [read]:
            if not isinstance(document, dict) or not str(document.get("id", "")).startswith("did:"):
                raise ConfigurationError(
                    f"a document without id in {path}", where=f"{where}.did_documents"
                )
            documents.append(document)
    return documents


def _check(options: Options, where: str) -> None:
    keys = bool(options.secrets_file or options.secrets_env)
    proven = keys if options.require_authenticated is None else options.require_authenticated
    options.check_listen(where, proven=proven, keys_hint="give secrets_file")
    _check_identity(options, where)
    _check_sequence(options, where)
    for place, protocol in enumerate(options.protocols):
        if not protocol.type:
            raise ConfigurationError("no type", where=f"{where}.protocols[{place}].type")
    check_files(options.tls, f"{where}.tls")


def _check_identity(options: Options, where: str) -> None:
    if options.secrets_file and options.secrets_env:
        raise ConfigurationError(
            "secrets_file and secrets_env are both given", where=where, hint="leave one of them out"
        )
    _check_did(options.did, f"{where}.did")
    for place, peer in enumerate(options.peers):
        _check_did(peer.did, f"{where}.peers[{place}].did")
        check_url(peer.endpoint, ("http", "https"), f"{where}.peers[{place}].endpoint")
    if options.packing in (Packing.AUTHCRYPT, Packing.SIGNED) and not (
        options.secrets_file or options.secrets_env
    ):
        raise ConfigurationError(
            f"{options.packing!s} needs our keys",
            where=f"{where}.packing",
            hint="give secrets_file",
        )


def _check_did(did: str | None, where: str) -> None:
    if did is not None and (not did.startswith("did:") or not did.isprintable() or " " in did):
        raise ConfigurationError(f"{did!r} is not a DID", where=where)


def _check_sequence(options: Options, where: str) -> None:
    if options.outbox.first_number != 1:
        raise _first_number_error(f"{where}.outbox")
    _check_policies(options.sequence, f"{where}.sequence")
    for place, protocol in enumerate(options.protocols):
        if protocol.sequence is not None:
            _check_policies(protocol.sequence, f"{where}.protocols[{place}].sequence")


def _check_policies(settings: SequencerSettings, where: str) -> None:
    if settings.first_number != 1:
        raise _first_number_error(where)
    if settings.gap_policy is GapPolicy.REALIGN or settings.gap_last_resort is LastResort.REALIGN:
        raise ConfigurationError(
            "DIDComm has no other way to obtain the state of lost messages",
            where=where,
            hint="resend, wait, skip or fail",
        )


def _first_number_error(where: str) -> ConfigurationError:
    return ConfigurationError(
        "sender_order counts from 1 (Advanced Sequencing)", where=f"{where}.first_number"
    )
