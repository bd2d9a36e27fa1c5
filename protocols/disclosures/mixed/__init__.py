"""MIXED: the receiver sees mixtures of a client's records, never one record.

Who stands in which mixture, the product that mixes, how mixtures stand in bytes, and the boxes that
a relay opens without learning what is in them.
"""

MEANING = "mixtures of several distinct records"
BACK = True
GIVEN = None
