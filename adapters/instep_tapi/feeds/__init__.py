"""What the transports of a stream share: its opening, the buffer, keep-alive, errors."""
