"""The documentation as a site: links, pages made from the code, and MkDocs' hook.

`make docs` builds it from mkdocs.yml. Pages that say what the code says (the command line, schemas,
the public Python names, ...) are made here at each build and lie nowhere else, so that none can be
stale. Nothing here is imported by the five floors.
"""
