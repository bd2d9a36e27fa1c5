"""The law: what may be said, by whom, to whom, in what protected form, and the record of it.

`messages`, `rounds` and `forms` hold the nouns an algorithm may use; everything else enforces them:

- ``policy``: what the data owner allows, and in which protected form
- ``plan``: everything that would leave, computed before any data is touched
- ``disclosures``: one folder for each thing that a receiver may learn
- ``wire``: envelopes, the gateway that makes them and the inbox that checks them
- ``evidence``: the tamper-evident record kept by each party
- ``keys``, ``privacy``: an epoch's keys; noise and what it comes to
- ``sessions``: one state machine per role, without IO: bytes in, bytes out

Nothing here imports torch, sockets, clocks or processes; time and storage are injected.
"""
