"""A stream over WebSocket: handshake, messages, keep-alive, back-pressure."""
