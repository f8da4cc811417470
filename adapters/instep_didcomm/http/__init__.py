"""The transports: HTTP POST in both directions, WebSocket for receiving."""
