"""What is computed again from the data of a run, and needs no capture."""
