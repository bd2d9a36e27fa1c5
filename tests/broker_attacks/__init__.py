"""The broker as an adversary sees it: what stays refused, and what is still open."""
