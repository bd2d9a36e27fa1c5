"""Measurements; ratios within one run, nothing asserted."""
