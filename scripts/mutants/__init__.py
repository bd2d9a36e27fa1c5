"""Planted faults: does some test find each of them?

`faults.yaml` holds the faults, `found_by.yaml` the tests that are tried first, `listed` reads both
and plants, `python -m scripts.mutants` runs the tests.
"""
