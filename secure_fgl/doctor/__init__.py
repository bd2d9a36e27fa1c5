"""Whether this machine and this installation are fit: versions, extras, floors, entropy, disk."""
