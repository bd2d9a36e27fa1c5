"""What one role of a run could see, or some pooled: a report of its own (O30)."""
