"""The commands of `instep_wsrm`."""
