"""RELEASED: what was computed from outputs that are already disclosed, such as the global model."""
