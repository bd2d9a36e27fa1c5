"""What of rows stands in a session's kept state."""

from __future__ import annotations

from protocols.disclosures.row_sum.view import RowAnswers, RowsView

KEPT = (RowAnswers, RowsView)
