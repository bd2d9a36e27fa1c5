"""Where the time and the bytes of one run go, for a run that is profiled (docs/adr/0037)."""
