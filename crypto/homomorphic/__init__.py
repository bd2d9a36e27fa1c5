"""Arithmetic on encrypted integers, by SEAL inside the TenSEAL wheel: sums, weighted sums, cosines.

`he` is the face of the sums. Masks and shared keys of a cohort live one folder up.
"""
