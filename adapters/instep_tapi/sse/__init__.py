"""One open stream of server-sent events, from its request to its records."""
