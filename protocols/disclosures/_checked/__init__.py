"""Totals that clients compute models from: their checks, how they travel, and what is read of them.

Sums carry the checks, and what is released hands the totals on; neither knows the other's parts.
"""
