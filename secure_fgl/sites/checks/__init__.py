"""What a site looks at before a run begins: ``secure-fgl site check``.

Each check is one function of a :class:`~secure_fgl.sites.checks.lines.Subject` that returns a
sentence, or raises why not. They are listed in ``listed``, in their order.
"""
