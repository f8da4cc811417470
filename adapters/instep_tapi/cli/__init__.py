"""Commands of `instep` that speak TAPI, found through the entry-point group `instep.commands`."""
