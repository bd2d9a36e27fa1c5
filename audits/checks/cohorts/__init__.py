"""Whether each cohort that was asked is one that lots drew, or that signed cuts left together."""
