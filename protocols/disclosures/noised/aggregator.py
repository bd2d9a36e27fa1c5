"""The aggregator's part while a relay takes the senders off (O23)."""

from __future__ import annotations

from protocols.disclosures._relayed.aggregator import Unlinking

AGGREGATOR = Unlinking
