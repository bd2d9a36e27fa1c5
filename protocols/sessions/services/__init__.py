"""Parts of sessions that serve several disclosures: keys, heads, survivors, refusals, answering.

What belongs to one disclosure lies in its folder under `protocols.disclosures`. A part holds its
own state and asks others through what it was given when it was made.
"""
