"""The plug-in of the entry point `instep.sources: nats`."""

from __future__ import annotations

from instep.config.listener_plugin import ListenerPlugin
from instep_broker import BrokerListener
from instep_nats.jetstream import JetStreamBroker
from instep_nats.options import Options, read_options

__all__ = ["listener", "source"]

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
