"""`instep conformance`: the judgement on a peer, as a table, JSON, JUnit XML or a page."""
