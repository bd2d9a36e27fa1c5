"""What key authority and witness do to compare directions, as `_evaluated` says."""

from __future__ import annotations

from protocols.clusters import Cut
from protocols.disclosures._evaluated.parties import ResultWitness, Revealing
from protocols.disclosures._evaluated.uploads import Evaluation, Upload, Uploads
from protocols.disclosures.similarity.disclosure import ClearCosines, Compared, CosinesView

KEY_AUTHORITY = Revealing


WITNESS = ResultWitness


KEPT = (ClearCosines, Compared, CosinesView, Cut, Evaluation, Upload, Uploads)
