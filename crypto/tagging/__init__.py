"""Tags of items: the group, the oblivious function of two servers, and tags by one shared key.

Who compares tags, and what a tag tells whom, is the business of `protocols.disclosures.match`.
"""
