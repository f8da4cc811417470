"""From bytes to records: frames, headers, bodies, names, times. Pure: no I/O, no clock."""
