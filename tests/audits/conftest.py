"""Fixtures of the auditors' tests."""

from collections.abc import Iterator

import pytest

from tests.audits.account_tools import found, quick
from tests.audits.report_tools import hostile, page, report
from tests.audits.verify_tools import other, toy, view

__all__ = ["found", "hostile", "other", "page", "quick", "report", "toy", "view"]


@pytest.fixture(scope="module")
def in_two_steps() -> Iterator[None]:
    """An aggregator that has every list voted for first, as on a sparse graph."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("protocols.disclosures.sum.aggregator.one_answer", lambda *_: False)
        yield
