"""Records/s from socket to committed rows, beside a floor: `python -m bench` or `make bench`."""
