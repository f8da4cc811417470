"""What adapters of message brokers share: where a message has its number, the connection that is
made again, and the answer to the broker after the commit.

An adapter of another broker is a `Broker`, with options and a plug-in of its own.
"""

from instep_broker.broker import Broker, Delivery
from instep_broker.listener import BrokerListener
from instep_broker.options import BrokerOptions, read_broker_options

__all__ = ["Broker", "BrokerListener", "BrokerOptions", "Delivery", "read_broker_options"]
