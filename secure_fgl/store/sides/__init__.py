"""Runs between organisations on disk: one party's side, as it lies, handed over, and gathered.

Reading and writing only: what a file may hold is decided in `audits.bundle.hand_over`.
"""
