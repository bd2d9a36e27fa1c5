"""Toy algorithms, one per disclosure: proof that the nouns carry what real algorithms will say."""
