"""Models that a run hands out, for attack A12: whose records they were trained on."""
