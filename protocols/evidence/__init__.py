"""What proves afterwards what left: ledgers, their heads held by others, and captured rounds."""
