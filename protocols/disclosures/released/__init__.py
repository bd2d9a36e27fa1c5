"""RELEASED: what was computed from outputs that are already disclosed, such as the global model."""

MEANING = "what was computed from already disclosed outputs"
BACK = False
GIVEN = 3
