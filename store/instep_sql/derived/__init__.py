"""Keeps what is derived (`instep.ports.derivation`): one life for all of it, in the transactions of
the entities.
"""
