"""The transport between organisations: a NATS server carries sealed envelopes.

``rights`` says who may publish and subscribe what, ``config`` writes the server's configuration
from a charter, ``server`` runs one for a rehearsal. ``carrier`` is the process that has the network
and no key of the run; it reaches the party's own process by the Unix socket of ``channel``.
``requests`` sends one request to one site and fetches its reply in parts (``messages``);
``waiting`` decides for whom the aggregator waits. See docs/adr/0098-broker.md.
"""
