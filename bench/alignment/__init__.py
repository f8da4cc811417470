"""Records/s from socket to committed rows."""
