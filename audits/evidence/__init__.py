"""What a run's own files say, and whether they hold: the strict reading of them, and verification.

Every step of the verification is a check in `audits.checks`. Nothing here judges or explains.
"""
