"""Periods of measurement as series (TR-548 3.9.2.6, 3.9.2.7)."""
