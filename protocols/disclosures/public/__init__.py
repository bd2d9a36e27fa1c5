"""PUBLIC: configuration, seeds and public keys; nothing of anybody's data."""

MEANING = "configuration, seeds and public keys"
BACK = False
GIVEN = 4
