"""Where data comes from, one file per kind; the folder is the registry.

A source offers

* `NAMES`: the data sets it knows, by name;
* `describe(name, options) -> Shape`: sizes that are public, from a table or from the options,
  never from a file;
* `load(name, root, options) -> Dataset`: the data itself.
"""
