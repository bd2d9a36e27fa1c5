"""One simulated run: its parties, the loop that drives them, and what the run measures beside them.

Transports between machines live in `secure_fgl.transports`, what a run leaves in `store`.
"""
