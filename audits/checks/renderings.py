"""The report files: are they what these files give, byte for byte?"""

from __future__ import annotations

from audits.evidence.run_files import fail
from audits.evidence.steps import Case, Check, NotChecked
from audits.formats import FORMATS, file_names, render
from audits.report.build import report_of


def report(case: Case) -> str:
    """Every report file equals a fresh rendering, so that none was edited afterwards."""
    present = case.view.reports
    if not present:
        raise NotChecked("there is no report in the run folder")
    wanted = [name for name in FORMATS if set(file_names(name)) & set(present)]
    fresh = render(report_of(case), wanted)
    for name, content in present.items():
        if name not in fresh:
            fail("report", "report/ holds a file that is none of ours")
        elif content != fresh[name]:
            fail(
                "report",
                f"{name} is not what these files give: it was edited, or made by another version",
            )
    return f"{len(fresh.keys() & present.keys())} report files are what these files give"


REPORT = Check("report", ("files", "plan", "roster", "chain"), report)
