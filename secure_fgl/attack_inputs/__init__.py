"""What the attacks on a finished run are given: from its folder, its captures and its data.

The attacks live in `audits.attacks`. Nothing of a folder is used before it is verified.
"""
