"""What the bodies of TAPI mean, read once: pure code for the adapter, a store and a lake."""
