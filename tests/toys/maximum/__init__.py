"""MAXIMUM: the receiver learns the largest of the cohort's small integers, and not whose it is.

A toy that shows what a disclosure's folder is: a test puts it beside the others
(tests/toys/test_maximum.py). It is not audited for use.
"""

MEANING = "only the largest of the cohort's integers"
BACK = True
GIVEN = None
