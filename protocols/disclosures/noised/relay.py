"""The relay's part: takes the senders off a cohort's messages, and reads none of them (O23)."""

from __future__ import annotations

from protocols.disclosures._relayed.relay import BatchRelay

RELAY = BatchRelay
