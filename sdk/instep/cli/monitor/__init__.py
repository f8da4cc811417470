"""`instep monitor`: what `/status.json` and the stores tell, on a terminal (extra `monitor`)."""
