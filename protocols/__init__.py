"""The law: what may be said, by whom, to whom, in what protected form, and the record of it.

`messages` and `rounds` hold the nouns an algorithm may use; everything else enforces them:

- ``policy``, ``guards``: what the data owner allows, and in which protected form
- ``plan``: everything that would leave, computed before any data is touched
- ``gateway``: the only maker of envelopes
- ``ledger``: the tamper-evident record kept by each party
- ``sessions``: one state machine per role, without IO: bytes in, bytes out

Nothing here imports torch, sockets, clocks or processes; time and storage are injected.
"""
