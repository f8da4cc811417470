"""The headers and bodies of WS-ReliableMessaging as data: read, written, and nothing decided."""
