"""Numbered messages from a stream of NATS JetStream."""

from instep_nats.jetstream import JetStreamBroker
from instep_nats.options import Options, read_options

__all__ = ["JetStreamBroker", "Options", "read_options"]
