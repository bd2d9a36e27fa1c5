"""ROW_SUM: of public rows, what the terms of enough other clients add up to (docs/adr/0051).

A row has a public number and stands for a node; every client knows to which rows its own nodes add
a term. Rows are found by tags of these numbers, which two tag servers make; a matcher says who adds
up which row for whom, so that no node enters two rows and none rests on too few clients.
"""

MEANING = "of some rows, what the terms of enough other clients add up to"
BACK = True
GIVEN = 5
