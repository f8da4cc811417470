"""Keys: our secret keys, and the DID documents of the peers."""
