"""How a run's scores moved from round to round, and which model it delivers."""
