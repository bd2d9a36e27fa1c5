"""How a cluster of clients is cut in two by how alike they are, the same at every party (ADR 0043).

Whoever opens the cosines computes the cut from them: the key authority in protected runs, the
aggregator where they come in clear.
"""
