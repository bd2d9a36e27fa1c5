"""Noise as a function, for attack A10: what is claimed of one release, and runs of it."""
