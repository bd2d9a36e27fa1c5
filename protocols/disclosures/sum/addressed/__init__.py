"""A sum that one client of its cohort reads, and neither the aggregator nor another client (O11).

In the place of a value its reader uploads a blind, under the protection of all other summands; so
what is opened is uniform, and the reader alone takes the blind off (ADR 0050).
"""
