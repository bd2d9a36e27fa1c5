"""What a run's noise is worth: planned, as the ledgers record it, and by whose arithmetic."""
