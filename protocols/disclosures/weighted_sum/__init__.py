"""WEIGHTED_SUM: each receiver learns its own weighted combination of the others' vectors (O10)."""

MEANING = "each receiver its own weighted combination"
BACK = True
GIVEN = 0
