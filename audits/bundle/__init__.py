"""``bundle.zip``: everything a verifier needs of a run, in one file that is checked offline.

``archive``     the zip: one byte string per set of files
``manifest``    which files there are, and their digests
``keys``        who may sign in this run
``statements``  what an auditor signs: in-toto statements in DSSE envelopes
``making``      a run's files to a bundle's files
``reading``     and back

The steps that only a bundle has stand in ``audits.checks.bundle``. No clock, no disk: the face
brings day and environment, and writes what is made here.
"""
