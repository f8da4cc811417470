"""Rules for WebSockets: what servers and gateways do to frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from instep.testing.relay.websocket import Frame, Opcode, WebSocketRule, fragments

__all__ = [
    "FragmentedMessages",
    "GoingAway",
    "HeartbeatText",
    "ServiceRestart",
    "SwallowedMessages",
    "SwallowedPings",
]


class HeartbeatText(WebSocketRule):
    """After a message of the server comes a text message that is none of the protocol: a heartbeat.

    Args:
        text: What it says.
    """

    name = "heartbeat-text"
    reports = ("gdombiak/OctoPod #105", "KanishJebaMathewM/Truxify #359", "wellCh4n/oops #50")

    def __init__(self, text: str = "ping", *, share: float = 1.0, most: int | None = None) -> None:
        super().__init__(share=share, most=most)
        self.text = text

    def frame_from_server(self, frame: Frame) -> Sequence[Frame]:
        if frame.final and not frame.control and self.strikes():
            return frame, Frame(Opcode.TEXT, self.text.encode())
        return (frame,)


class GoingAway(WebSocketRule):
    """The connection is closed with 1001 after some frames of the server.

    Args:
        after_frames: After how many, counted over all connections.
    """

    name = "close-going-away"
    reports: ClassVar[tuple[str, ...]] = ("websocket-client/websocket-client #873",)
    code = 1001

    def __init__(
        self, after_frames: int = 100, *, share: float = 1.0, most: int | None = None
    ) -> None:
        super().__init__(share=share, most=most)
        self.after_frames = after_frames
        self._frames = 0

    def frame_from_server(self, frame: Frame) -> Sequence[Frame]:
        self._frames += 1
        if self._frames >= self.after_frames and self.strikes():
            self._frames = 0
            return (Frame(Opcode.CLOSE, self.code.to_bytes(2, "big")),)
        return (frame,)


class ServiceRestart(GoingAway):
    """The connection is closed with 1012 after some frames of the server.

    Args:
        after_frames: After how many, counted over all connections.
    """

    name = "close-service-restart"
    reports = ("NousResearch/hermes-agent #95951", "ColeMurray/background-agents #1795")
    code = 1012


class SwallowedPings(WebSocketRule):
    """Pings and Pongs of both sides are lost; messages pass."""

    name = "swallowed-pings"
    reports = ("spring-cloud/spring-cloud-gateway #729", "wso2/carbon-mediation #1648")

    def frame_from_client(self, frame: Frame) -> Sequence[Frame]:
        return self._without(frame)

    def frame_from_server(self, frame: Frame) -> Sequence[Frame]:
        return self._without(frame)

    def _without(self, frame: Frame) -> Sequence[Frame]:
        lost = frame.opcode in (Opcode.PING, Opcode.PONG) and self.strikes()
        return () if lost else (frame,)


class FragmentedMessages(WebSocketRule):
    """Messages of the server come in many fragments.

    Args:
        size: The size of a fragment, in bytes.
    """

    name = "fragmented-messages"
    reports = ("yjs/y-websocket #46", "slact/nchan #586", "actor-framework/actor-framework #1417")

    def __init__(self, size: int = 16, *, share: float = 1.0, most: int | None = None) -> None:
        super().__init__(share=share, most=most)
        self.size = size

    def frame_from_server(self, frame: Frame) -> Sequence[Frame]:
        if frame.control or len(frame.payload) <= self.size or not self.strikes():
            return (frame,)
        return fragments(frame, self.size)


class SwallowedMessages(WebSocketRule):
    """Messages of the server are lost. Where they are compressed, those that follow cannot be
    inflated, or inflate to something else.
    """

    name = "swallowed-messages"
    reports = ("faye/permessage-deflate-node #4", "python-websockets/websockets #665")

    def frame_from_server(self, frame: Frame) -> Sequence[Frame]:
        lost = frame.opcode == Opcode.TEXT and frame.final and self.strikes()
        return () if lost else (frame,)
