"""Federated learning: one algorithm per file, its models in `nn/` and its tasks in `tasks/`.

An algorithm says what it computes and which messages it exchanges, and nothing else. It holds no
clipping, noise, mask, key or client identity: those words cannot be imported here. Of
`protocols` it may use the nouns (`protocols.messages`, `protocols.rounds`), of `crypto` nothing.
The folder is the registry: a new algorithm is one new file that defines ``ALGORITHM``.
"""
