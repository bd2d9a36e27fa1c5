"""Fixtures of the face's tests."""

from tests.secure_fgl.budget_tools import store

__all__ = ["store"]
