"""Fixtures of the attacks' tests: two small runs, and what was planted in them."""

from __future__ import annotations

import pytest

from audits.evidence.steps import Case
from tests.audits.attacks.planted import exposures
from tests.audits.toy_run import run_toy


@pytest.fixture(scope="session")
def clear() -> Case:
    """A run whose updates left in clear."""
    return Case(run_toy("unsafe_plaintext").view())


@pytest.fixture(scope="session")
def masked() -> Case:
    """A run under masks."""
    return Case(run_toy("masks").view())


@pytest.fixture(scope="session")
def leak():
    """Twelve clients whose own updates are seen, one plain gradient step."""
    return exposures(12)


@pytest.fixture(scope="session")
def noise():
    """Sixty clients of whose updates nothing but noise is seen."""
    return exposures(60, noise=50.0)
