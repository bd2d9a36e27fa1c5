"""The engine for more than one machine: NVFlare carries our envelopes between organisations.

``facts`` is what each party announces and ``party`` what it holds, ``charter`` what they agreed on,
``approvals`` what each said to it, ``joining`` how it says so and ``changes`` what is new since the
last one; ``rules`` is what every charter keeps to, ``keys`` a party's own ones, ``checks`` what a
site looks at before it starts. ``party_process`` makes a session of it (``sessions``) and ``site``
runs that; ``office`` conducts and rehearses. ``kits`` and ``job`` set NVFlare up, ``controller``
carries at the aggregator and ``executor`` at every other site. NVFlare sees addresses and bytes;
see docs/adr/0010-nvflare.md, 0057, 0059, 0060 and 0062.
"""
