"""What several sources share. No source lives here: `sources/` is the registry."""
