"""Local randomisers: what one client sends hides its value by its own draws, whoever colludes.

Every mechanism maps a value to whole numbers (`encode`) and a cohort's messages to an estimate of
the mean (`mean`), with the error to expect (`variance`). The probabilities of what is sent are
ratios of integers, so epsilon holds for the sampler and not for its idealisation. What happens to
a value before it is randomised may use floating point: privacy never rests on it.
"""
