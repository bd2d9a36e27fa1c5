"""What several models share. No model lives here: `algorithms/nn/` is the registry."""
