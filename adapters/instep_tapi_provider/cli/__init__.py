"""Commands of `instep` that run the simulated provider: `provider` and `demo`."""
