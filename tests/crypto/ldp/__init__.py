"""Tests of what one client's own noise hides."""
