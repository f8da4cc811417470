"""Handlers of the user, which are given each change in the transaction that commits it."""
