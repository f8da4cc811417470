"""Commands of `instep` that speak BICEPS, found through the entry-point group `instep.commands`."""
