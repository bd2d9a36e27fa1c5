"""How attacks reckon: one method a file, on arrays and opened sums, without verdicts.

What attacks are given and how they are judged lies in `audits.attacks._shared`.
"""
