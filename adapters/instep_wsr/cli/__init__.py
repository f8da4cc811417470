"""The commands of `instep_wsr`."""
