"""The engine for more than one machine: NVFlare carries our envelopes between organisations.

``party`` is what each party holds, ``charter`` what they agreed on, ``party_process`` makes a
session of it, ``kits`` and ``job`` set NVFlare up, ``controller`` runs at the aggregator and
``executor`` at every other site. NVFlare sees addresses and bytes; see docs/adr/0010-nvflare.md.
"""
