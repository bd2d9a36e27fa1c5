"""Pages that say what the code says, made anew whenever the site is built.

python -m scripts.site.reference FOLDER    # writes them, for readers without the site
"""

from __future__ import annotations

from scripts.site.reference.api import api
from scripts.site.reference.cli import cli
from scripts.site.reference.lists import attacks, catalogue, disclosures, exit_codes
from scripts.site.reference.schemas import schema

__all__ = ["made"]


def made() -> dict[str, str]:
    """Return the Markdown of every page, by its file's name."""
    return {
        "api.md": api(),
        "cli.md": cli(),
        **{f"{name}.md": schema(name) for name in ("config", "policy", "plan", "report")},
        "exit-codes.md": exit_codes(),
        "attacks.md": attacks(),
        "disclosures.md": disclosures(),
        "catalogue.md": catalogue(),
    }
