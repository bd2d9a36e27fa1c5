"""The laws: what is true of every algorithm in the catalogue."""
