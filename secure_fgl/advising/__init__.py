"""Advice: what else could be run with a run's data, what it would leak, and how good it would be.

`candidates` says what is tried, `trials` trains and attacks it, `choosing` picks by validation
accuracy, `pages` writes table and plot.
"""
