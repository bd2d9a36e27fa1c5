"""Clients of a simulation in several processes, forked once a run (docs/adr/0037-workers.md)."""
