"""Numbered messages from a stream of NATS JetStream, and events to one."""

from instep_nats.jetstream import JetStreamBroker
from instep_nats.options import Options, read_options
from instep_nats.target import JetStreamTarget

__all__ = ["JetStreamBroker", "JetStreamTarget", "Options", "read_options"]
