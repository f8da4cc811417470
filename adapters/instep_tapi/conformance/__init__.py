"""What a client can see of TR-548: the rules, and the reading of traces for them."""
