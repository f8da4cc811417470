"""Merges that mark rows of a Delta table as deleted instead of writing their files anew."""
