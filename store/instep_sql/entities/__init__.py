"""What one commit of a stream writes: position, entities, sweep, journal, quarantine."""
