"""SEALED: only the named party opens it; who relays it learns its size."""

MEANING = "one named party opens it; a relay learns its size"
BACK = True
GIVEN = 2
