"""SUM: the receiver learns the cohort's total and nothing of one client.

Integers on a grid, added under encryption or masks; votes on whose uploads count; masks taken off.
Keys and shares, which an epoch's sums have in common, lie in `protocols.keys`.
"""

MEANING = "only the cohort's total"
BACK = True
GIVEN = None
