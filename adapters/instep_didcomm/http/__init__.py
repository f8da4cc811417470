"""The way in and out: HTTP POST and WebSocket."""
