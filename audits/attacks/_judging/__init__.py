"""From figures to verdicts: null controls over a report, the power of a PASS, and the words."""
