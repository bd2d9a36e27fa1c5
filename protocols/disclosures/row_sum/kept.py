"""What of rows stands in a session's kept state."""

from __future__ import annotations

from protocols.disclosures.row_sum.protocol.assignment import Adding, Getting, Orders
from protocols.disclosures.row_sum.protocol.client import ClientRows
from protocols.disclosures.row_sum.protocol.wire import RowRun
from protocols.disclosures.row_sum.run import RowSide
from protocols.disclosures.row_sum.view import HandedRows, RowAnswers, RowsView

KEPT = (
    *(Adding, ClientRows, Getting, HandedRows, Orders),
    *(RowAnswers, RowRun, RowSide, RowsView),
)
