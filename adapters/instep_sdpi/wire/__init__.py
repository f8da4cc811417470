"""BICEPS messages as bytes and as data; no I/O."""
