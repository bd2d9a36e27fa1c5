"""What of mixtures stands in a session's kept state."""

from __future__ import annotations

from protocols.disclosures.mixed.mixing import Mixer
from protocols.disclosures.mixed.view import EachView, Mixtures

KEPT = (EachView, Mixer, Mixtures)
