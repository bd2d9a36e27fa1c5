"""What parties agree on before a run, and hold of their own.

``facts`` is what each party announces and ``party`` what it holds, ``charter`` what all agree on,
``broker`` where they meet, ``approvals`` what each answered, ``joining`` how it answers and keeps
a charter, ``changes`` what is new since the last one. ``organisations``, ``parties`` and
``versions`` are rules of every charter; ``identity_file``, ``passphrase`` and ``renewal`` are a
party's own keys.
"""
