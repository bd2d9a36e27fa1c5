"""From values to ciphertexts, as for all that is computed on them."""

from __future__ import annotations

from protocols.disclosures._evaluated.protect import EvaluatedProtection

PROTECT = EvaluatedProtection()
