"""Fixtures of the auditors' tests."""

from tests.audits.account_tools import found, quick
from tests.audits.report_tools import hostile, page, report
from tests.audits.verify_tools import other, toy, view

__all__ = ["found", "hostile", "other", "page", "quick", "report", "toy", "view"]
