"""The commands of `instep_didcomm`."""
