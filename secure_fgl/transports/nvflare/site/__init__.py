"""The party's own process, and how the relay in NVFlare's job process reaches it.

``channel`` is the socket between them and ``codes`` what a site says when it has no answer.
``supervisor`` starts the party's process and starts it again, ``session`` is that process,
``answering`` what it says to envelopes, ``conducting`` how the aggregator's reaches its relay,
``patience`` for whom it waits, and ``leaving`` how a site is stopped. ``channel`` and ``codes`` are
all that a relay loads of it. See docs/adr/0059-relays.md.
"""
