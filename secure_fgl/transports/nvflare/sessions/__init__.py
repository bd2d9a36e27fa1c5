"""One party's session in its process: how it is made, and what its operator can watch of it.

``opening`` makes or takes up a session with its files, ``status`` is the small file that
``secure-fgl status`` reads, and ``told`` tells it what the aggregator's rounds do.
"""
