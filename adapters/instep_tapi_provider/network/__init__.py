"""The provider on the network: RESTCONF, logins, WebSocket streams and the control endpoint."""
