"""The engine for more than one machine: NVFlare carries our envelopes between organisations.

``facts`` is what each party announces and ``party`` what it holds, ``charter`` what they agreed on,
``approvals`` what each said to it, ``joining`` how it says so and ``changes`` what is new since the
last one. ``party_process`` makes a session of it, which runs in the party's own process (``site``).
``kits`` and ``job`` set NVFlare up; ``controller`` relays at the aggregator and ``executor`` at
every other site. NVFlare sees addresses and bytes; see docs/adr/0010-nvflare.md, 0057 and 0059.
"""
