"""NeighGen (Zhang et al., NeurIPS 2021, FedSage+): a client guesses the neighbours that it misses.

A client hides some of its own nodes, and what it sees of the rest is an example of a graph with
missing neighbours (`impaired`). Of every node v it learns how many are missing (dGen, `counting`),
and what their features are (fGen, `generator`), and then adds such nodes to its whole graph
(`mended`). Both look at a code z_v of the node and what is around it (`codes`).
"""
