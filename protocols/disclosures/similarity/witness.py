"""What a witness does with it: it computes results again."""

from __future__ import annotations

from protocols.disclosures._evaluated.witness import ResultWitness

WITNESS = ResultWitness
