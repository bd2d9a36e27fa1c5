"""How a graph is shared out among clients, one rule per file; the folder is the registry.

A rule's file is called like the rule and offers `assign(graph, clients, rng, **options)`, the
owner of every node as int64 (N,) in [0, clients).
"""
