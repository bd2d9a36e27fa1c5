"""Files that outlive a process: run folders, kept state, captures, bundles and budgets.

Everything that reads a folder which somebody else may have filled goes through `files`.
"""
