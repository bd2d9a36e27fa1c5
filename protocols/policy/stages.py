"""What a value is between two guards of a chain."""

from __future__ import annotations

from enum import IntEnum


class Stage(IntEnum):
    """What a value is between two guards; a chain in a wrong order does not construct."""

    VALUE = 0
    BOUNDED = 1
    INTEGER = 2
    NOISED = 3
    MASKED = 4
    CIPHERTEXT = 5
    ENVELOPE = 6
    UNIT = 7
    MIXED = 8
    BLURRED = 9
    BOXED = 10
    MATCHED = 11
