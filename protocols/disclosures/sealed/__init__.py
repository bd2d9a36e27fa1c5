"""SEALED: only the named party opens it; who relays it learns its size."""
