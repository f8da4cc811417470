"""One file a table of the lake."""
