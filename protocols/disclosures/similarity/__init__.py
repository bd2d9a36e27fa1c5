"""SIMILARITY: the receiver learns how alike two clients' vectors are, and no vector (O3)."""

MEANING = "only the matrix of pairwise cosines"
BACK = True
GIVEN = None
