"""The plug-ins of the entry points `instep.sources: nats` and `instep.targets: nats`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from instep.config.listener_plugin import ListenerPlugin
from instep.config.options import read_table
from instep.config.secret import Secret
from instep.config.shown import shown_table
from instep.model.limits import Seconds
from instep_broker import BrokerListener
from instep_http import TlsOptions
from instep_nats.jetstream import JetStreamBroker
from instep_nats.options import Options, read_options
from instep_nats.target import JetStreamTarget

__all__ = ["listener", "source", "target"]

KIND = "nats"


def listener(options: Options, where: str = KIND) -> BrokerListener:
    """A listener, which connects to nothing yet. Raises `ConfigurationError`."""
    return BrokerListener(KIND, JetStreamBroker(options, where), options, where)


source = ListenerPlugin(
    Options,
    read_options,
    listener,
    {"content-changed": "other content came under a number of the sequence"},
)
"""Receives numbered messages from a stream of NATS JetStream."""


class JetStreamTargetOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A stream of NATS JetStream that takes CloudEvents."""

    servers: Annotated[tuple[str, ...], msgspec.Meta(extra_json_schema={"orOne": True})]
    """The servers of a cluster: ``tls://nats.example.org:4222``, or ``nats://`` on loopback."""
    stream: str
    """The stream of JetStream. It must be there, and take ``PREFIX.>``."""
    prefix: str = "instep"
    """The first part of the subjects."""
    user: str | None = None
    """The user that logs in, with `password`. A `token` is the other way."""
    password: Secret | None = None
    """The password of `user`."""
    token: Secret | None = None
    """The token that logs in, in place of `user` and `password`."""
    tls: TlsOptions = TlsOptions()
    """Which authority has signed the server's certificate, and our own certificate."""
    allow_plaintext: bool = False
    """Whether ``nats://`` may lead beyond loopback."""
    connect_timeout_s: Seconds = 5.0
    """Longest wait for a connection, and for each acknowledgement."""


class _JetStreamPlugin:
    options = JetStreamTargetOptions

    def check(self, options: Mapping[str, Any], where: str) -> None:
        self.build(options, where)

    def build(self, options: Mapping[str, Any], where: str) -> JetStreamTarget:
        table = dict(options)
        if isinstance(table.get("servers"), str):
            table["servers"] = [table["servers"]]
        read = read_table(
            JetStreamTargetOptions,
            table,
            where,
            required={"servers": "nats://127.0.0.1:4222", "stream": "ENTITIES"},
        )
        given = msgspec.structs.asdict(read)
        for name in ("password", "token"):
            given[name] = given[name] and given[name].reveal()
        # TLS that says nothing is none: `nats://` refuses a table of it.
        given["tls"] = None if read.tls == TlsOptions() else read.tls
        return JetStreamTarget(**given, where=where)

    def shown(self, table: Mapping[str, Any]) -> dict[str, Any]:
        return shown_table(JetStreamTargetOptions, table)


target = _JetStreamPlugin()
"""Publishes events to a stream; `instep.ports.plugin.TargetPlugin`."""
