"""What several algorithms share. No algorithm lives here: `algorithms/` is the registry."""
