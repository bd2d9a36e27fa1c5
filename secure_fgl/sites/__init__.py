"""One party of a run at its own site.

``process`` makes its session with its files, ``session`` is the process that runs it, ``start``
keeps that process and its carrier at work, ``stopping`` ends them in order, ``stopped``
says that they were, ``status`` and ``shown`` are what ``secure-fgl status`` prints, ``checks`` what
``secure-fgl site check`` looks at, and ``rehearsal`` plays all parties of a charter on one machine.
"""
