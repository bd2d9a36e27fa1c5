"""The inspector: what left each client, whether that was planned, and whether the record holds.

Everything here reads (ledgers, plans, heads, captured payloads) and nothing here sends. The
findings are data first; a report is one way to say them.
"""
