"""The options of a `nats` source, read from a table of the configuration and checked by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec

from instep.config.secret import Secret
from instep.errors import ConfigurationError
from instep.model.limits import Count, Seconds
from instep_broker import BrokerOptions, read_broker_options
from instep_http import TlsOptions, check_files, check_url

__all__ = ["Options", "read_options"]

_NAME: Final = re.compile(r"[^\s.*>/\\]{1,255}")
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
_OR_ONE = msgspec.Meta(extra_json_schema={"orOne": True})


class Options(BrokerOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which stream of which servers a `nats` source follows, and where its messages have their
    number.
    """

    servers: Annotated[tuple[str, ...], _OR_ONE]
    """The servers of a cluster: ``tls://nats.example.org:4222``, or ``nats://`` on loopback."""
    stream: str
    """The stream of JetStream. It must be there."""
    consumer: str = "instep"
    """The durable pull consumer, which keeps what was acknowledged. It is made where there is
    none; processes with the same one share the messages, so a consumer of instep has its own.
    """
    subjects: Annotated[tuple[str, ...], _OR_ONE] = ()
    """The subjects of the stream that are wanted, ``orders.>``; without any, all. They count when
    the consumer is made.
    """
    user: str | None = None
    """The user that logs in, with `password`. A `token` is the other way."""
    password: Secret | None = None
    """The password of `user`."""
    token: Secret | None = None
    """The token that logs in, in place of `user` and `password`."""
    tls: TlsOptions = TlsOptions()
    """Which authority has signed the server's certificate, and our own certificate."""
    allow_plaintext: bool = False
    """Whether ``nats://`` may lead beyond loopback: anybody on the way can then read the login and
    the messages, and change them.
    """
    ack_wait_s: Seconds = 30.0
    """When the server delivers again what was not answered. It counts when the consumer is made."""
    limit_unanswered: Count = 50_000
    """Most messages that the server lets wait for their answer, those that come again later among
    them (`max_ack_pending`). It counts when the consumer is made.
    """
    connect_timeout_s: Seconds = 5.0
    """Longest wait for a connection and for an answer of the server."""


def read_options(options: Mapping[str, Any], where: str) -> Options:
    """Check and read the table of a source, without connecting. Raises `ConfigurationError`."""
    table = dict(options)
    for name in ("servers", "subjects"):
        if isinstance(table.get(name), str):
            table[name] = [table[name]]
    read = read_broker_options(
        Options,
        table,
        where,
        required={"servers": "nats://127.0.0.1:4222", "stream": "ORDERS"},
        redelivers_after_s="ack_wait_s",
    )
    _check_servers(read, where)
    for name in ("stream", "consumer"):
        if not _NAME.fullmatch(getattr(read, name)):
            raise ConfigurationError(
                f"{getattr(read, name)!r} is not a name that JetStream accepts",
                where=f"{where}.{name}",
            )
    for place, subject in enumerate(read.subjects):
        if not subject or not subject.isprintable() or " " in subject:
            raise ConfigurationError(
                "the key 'subjects' has an empty one", where=f"{where}.subjects[{place}]"
            )
    _check_login(read, where)
    check_files(read.tls, f"{where}.tls")
    return read


def _check_servers(options: Options, where: str) -> None:
    if not options.servers:
        raise ConfigurationError(
            "the key 'servers' has no server",
            where=f"{where}.servers",
            hint='for example ["nats://127.0.0.1:4222"]',
        )
    schemes = set()
    for place, server in enumerate(options.servers):
        at = f"{where}.servers[{place}]"
        url = check_url(server, ("nats", "tls"), at, login_hint="write user and password, or token")
        if url.path not in ("", "/") or url.query_string or url.fragment:
            raise ConfigurationError("the address of a server has no path", where=at)
        schemes.add(url.scheme)
        if url.scheme == "nats" and url.host not in _LOOPBACK and not options.allow_plaintext:
            raise ConfigurationError(
                f"{url.host} is not loopback, and nothing is encrypted on the way",
                where=at,
                hint=f"tls://{url.host}, or allow_plaintext = true",
            )
    if len(schemes) > 1:
        raise ConfigurationError(
            "some servers have TLS and some have not",
            where=f"{where}.servers",
            hint="write tls:// for all of them",
        )
    if "nats" in schemes and options.tls != TlsOptions():
        raise ConfigurationError(
            "tls is given, but no server begins with tls://",
            where=f"{where}.tls",
            hint="write tls:// in servers, or leave tls out",
        )


def _check_login(options: Options, where: str) -> None:
    if options.token is not None and (options.user or options.password):
        raise ConfigurationError(
            "a user and a token are both given",
            where=f"{where}.token",
            hint="leave one of them out",
        )
    if (options.user is None) != (options.password is None):
        raise ConfigurationError("user and password belong together", where=f"{where}.user")
