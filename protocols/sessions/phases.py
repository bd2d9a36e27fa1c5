"""The order of what happens in one Ask, at the aggregator.

One phase at a time: a part begins its phase when the one before is over, is asked to go on when an
exchange's answers are in, and says that it is done by returning None. Phases that an Ask does not
want are left out; parts of one phase follow each other, by name.
"""

from __future__ import annotations

from enum import IntEnum


class Phase(IntEnum):
    """Where an Ask stands; the order is the order of the numbers."""

    BEFORE_ASK = 1  # rows that it hands out are weighed, witnessed and opened
    ANSWERS = 2  # it goes out, and the cohort answers
    SETTLE = 3  # who did not answer has vanished; those who did are its survivors
    UNLINK = 4  # a relay takes the senders off mixtures
    MATCH = 5  # tags are made and compared, and cells add up
    COMPARE = 6  # cosines are computed, witnessed and opened
    SUM = 7  # the survivor list is agreed on, and the total opened
    DONE = 8  # the reply is complete, or the round is lost
