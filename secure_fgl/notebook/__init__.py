"""What Python shows of runs, in a notebook or on a terminal: tables, rounds, progress."""
