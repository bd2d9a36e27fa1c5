"""What all attacks share: what they are given, what they give back, and how a verdict is made.

No attack lives here: `audits/attacks/` is the registry. How they reckon lies in `_methods`.
"""
