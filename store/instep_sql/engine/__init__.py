"""One database: its dialect, its worker thread, its schema, and how many rows are written at
once.
"""
