"""Keys of an epoch: who is paired with whom, secrets and their shares, and sealed boxes."""
