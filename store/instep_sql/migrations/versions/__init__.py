"""One module a revision, never edited after a release.

They are numbered from 0100 on: 0001 to 0019 are in stores made before 0.1.0, which are refused.
"""
