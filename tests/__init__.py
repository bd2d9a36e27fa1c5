"""The test suite: one folder for each floor, and what concerns the whole repository."""
