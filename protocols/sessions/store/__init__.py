"""A session's state where it survives its process, and captured rounds: locked, in closed formats.

What a session may hold is written down by one rule in `codec`; `keeping` locks it. Which state
there is says each part of a session itself; nothing here knows what a field means.
"""
