"""One module a revision; revisions are numbered 0001, 0002 … and never edited after a release."""
