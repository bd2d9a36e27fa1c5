"""Masks of one sum: whether what carries them looks so, and how they come off."""
