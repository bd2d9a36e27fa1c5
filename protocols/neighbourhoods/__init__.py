"""Who a client's neighbours are where clients read sums of their own, and how many a sum rests on.

Graphs and their weights are public and the same at every party (ADR 0053). Nothing here knows
names, keys or messages: clients are places from 0 on.
"""
