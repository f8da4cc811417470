"""Commands of the command line that work on a lake."""
