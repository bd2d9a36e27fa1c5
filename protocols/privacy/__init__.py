"""Differential privacy: Rényi accounting, how much noise a target asks for, and private training.

Noise is drawn in `crypto`; which message is noised is a guard of the policy.
"""
