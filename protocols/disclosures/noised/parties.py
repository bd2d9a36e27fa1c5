"""Noised messages may be relayed, so their roles do what `_relayed` says."""

from __future__ import annotations

from protocols.disclosures._relayed.aggregator import Unlinking
from protocols.disclosures._relayed.relay import BatchRelay
from protocols.disclosures.noised.decoys import Decoyer
from protocols.disclosures.noised.disclosure import Noised

AGGREGATOR = Unlinking


RELAY = BatchRelay


KEPT = (Decoyer, Noised)
