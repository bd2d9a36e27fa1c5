"""What WEIGHTED_SUM and SIMILARITY share: results that are computed on ciphertexts.

The aggregator computes, witnesses compute the same again, and the key authority opens the result
for its receiver alone.
"""
