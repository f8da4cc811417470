"""DIDComm messages with the Advanced Sequencing extension, by HTTP POST and WebSocket."""

from instep_didcomm.deviations import DEVIATIONS
from instep_didcomm.keys import new_identity
from instep_didcomm.listener import DidcommListener
from instep_didcomm.options import Options, Peer, read_options
from instep_didcomm.protocols import Protocol
from instep_didcomm.refusal import MessageRefusedError, Reason
from instep_didcomm.sender import Conversation, Sender

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
