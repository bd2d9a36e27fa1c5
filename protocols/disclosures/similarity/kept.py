"""What of what is compared stands in a session's kept state."""

from __future__ import annotations

from protocols.disclosures._evaluated.evaluation import Evaluation, Uploads
from protocols.disclosures._evaluated.uploads import Upload
from protocols.disclosures.similarity.view import Compared, CosinesView

KEPT = (Compared, CosinesView, Evaluation, Upload, Uploads)
