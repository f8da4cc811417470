"""RESTCONF: login, discovery, current state by GET."""
