"""DIDComm messages with the Advanced Sequencing extension, by HTTP POST and WebSocket."""

from instep_didcomm.deviations import DEVIATIONS
from instep_didcomm.identity.keys import new_identity
from instep_didcomm.listener import DidcommListener
from instep_didcomm.options import Options, Peer, read_options
from instep_didcomm.problems import MessageRefusedError, Reason
from instep_didcomm.sending.sender import Conversation, Sender
from instep_didcomm.wire.protocols import Protocol

__all__ = [
    "DEVIATIONS",
    "Conversation",
    "DidcommListener",
    "MessageRefusedError",
    "Options",
    "Peer",
    "Protocol",
    "Reason",
    "Sender",
    "new_identity",
    "read_options",
]
