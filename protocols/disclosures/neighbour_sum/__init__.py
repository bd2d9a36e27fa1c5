"""NEIGHBOUR_SUM: each client learns the weighted sum over its neighbours, and nobody else does.

Who they are is public and in the plan, and the same in every round. Whoever carries the boxes, the
coordinator, opens none of them (ADR 0053).
"""

MEANING = "each client the weighted sum over its own neighbours"
BACK = True
GIVEN = 1
