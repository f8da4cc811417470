"""The commands that only a SQL store has."""
