"""What of what is compared stands in a session's kept state."""

from __future__ import annotations

from protocols.clusters.cuts import Cut
from protocols.disclosures._evaluated.evaluation import Evaluation, Uploads
from protocols.disclosures._evaluated.uploads import Upload
from protocols.disclosures.similarity.view import ClearCosines, Compared, CosinesView

KEPT = (ClearCosines, Compared, CosinesView, Cut, Evaluation, Upload, Uploads)
