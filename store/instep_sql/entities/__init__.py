"""Writes one commit of a stream: position, entities, sweep, journal, quarantine."""
