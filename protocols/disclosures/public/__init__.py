"""PUBLIC: configuration, seeds and public keys; nothing of anybody's data."""
