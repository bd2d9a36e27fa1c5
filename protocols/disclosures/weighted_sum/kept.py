"""What of what is weighed stands in a session's kept state."""

from __future__ import annotations

from protocols.disclosures._evaluated.evaluation import Evaluation, Uploads
from protocols.disclosures._evaluated.uploads import Upload
from protocols.disclosures.weighted_sum.view import Mixture, Weighable, WeighedView

KEPT = (Evaluation, Mixture, Upload, Uploads, Weighable, WeighedView)
