"""WEIGHTED_SUM: each receiver learns its own weighted combination of the others' vectors (O10)."""
