"""The headers of WS-Reliability as data: read, written, and nothing decided."""
