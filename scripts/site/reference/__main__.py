"""Write the pages of the reference into a folder."""

import sys
from pathlib import Path

from scripts.site.reference import made

if len(sys.argv) != 2:
    sys.exit("Usage: python -m scripts.site.reference FOLDER")
folder = Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
for name, text in made().items():
    (folder / name).write_text(text, "utf-8")
