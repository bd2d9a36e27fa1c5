"""What of sums stands in a session's kept state."""

from __future__ import annotations

from crypto.masks import MaskSum
from protocols.disclosures.sum.addressed.view import AddressedView
from protocols.disclosures.sum.masked.unmasking import Unmasking
from protocols.disclosures.sum.view import Summands, TotalView

KEPT = (AddressedView, MaskSum, Summands, TotalView, Unmasking)
