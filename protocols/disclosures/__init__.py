"""What a receiver is meant to learn of a message: one folder a disclosure.

A folder holds all that is special to its disclosure: guards, layout in bytes, plan items, what the
roles compute, and the words for plans. `_evaluated` holds what the disclosures that are computed on
ciphertexts share. What every disclosure goes through (plan, gateway, ledger) lies elsewhere.
"""
