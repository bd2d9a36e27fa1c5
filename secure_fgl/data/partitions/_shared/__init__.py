"""What several partitions share. No partition lives here: `partitions/` is the registry."""
