"""SIMILARITY: the receiver learns how alike two clients' vectors are, and no vector (O3)."""
