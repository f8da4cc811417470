"""Whose keys: our secret keys, and the DID documents of peers."""
