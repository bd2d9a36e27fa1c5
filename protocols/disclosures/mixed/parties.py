"""Mixed records are relayed, so their roles do what `_relayed` says."""

from __future__ import annotations

from protocols.disclosures._relayed.aggregator import Unlinking
from protocols.disclosures._relayed.relay import BatchRelay
from protocols.disclosures.mixed.disclosure import EachView, Mixtures
from protocols.disclosures.mixed.mixing import Mixer

AGGREGATOR = Unlinking


RELAY = BatchRelay


KEPT = (EachView, Mixer, Mixtures)
