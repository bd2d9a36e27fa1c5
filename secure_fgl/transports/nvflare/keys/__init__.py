"""A party's own keys: the file in which they lie, the passphrase over it, and the next ones."""
