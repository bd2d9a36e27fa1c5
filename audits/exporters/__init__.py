"""Drafts for other people's forms, of one report each.

An exporter fills in what the record of a run shows and leaves empty what only people can know:
purposes, legal bases, gravity, likelihood, opinions. Equal reports, equal bytes. A draft is no
statement that anything complies with anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from audits.exporters import art30_csv, assessment, junit, sarif
from audits.report.models import Report

EXPORTERS: Mapping[str, Callable[[Report, str], bytes]] = {
    "art30-csv": lambda report, _: art30_csv.export(report),
    "cnil-pia": lambda report, _: assessment.cnil(report),
    "dpia-md": lambda report, _: assessment.markdown(report),
    "junit": lambda report, _: junit.export(report),
    "sarif": sarif.export,
}
"""Makes a draft from a report, whose evidence should hold, and the text of the run's plan."""

OF_BROKEN = frozenset({"junit"})
"""Drafts of runs whose evidence is broken, too: a CI has to show exactly that."""
