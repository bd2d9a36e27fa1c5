"""Ledgers of a run that still goes on, entry by entry as they grow.

Here is what an entry means against the plan and what it adds up to. What reads files lies in
`secure_fgl`; what judges a finished run lies in `audits.checks`.
"""
