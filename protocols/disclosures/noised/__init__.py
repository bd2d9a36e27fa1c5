"""NOISED: single rows with decoys among them, each clipped and noised by its client.

As FedPerGNN publishes it. Nothing here hides a client the way a sum does.
"""

MEANING = "each message after local noise"
BACK = True
GIVEN = None
