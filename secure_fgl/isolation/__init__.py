"""Answers of algorithms in a process of their own: no keys, no network, no files, by the kernel.

A client's session holds keys, ledger and door; what an algorithm answers is computed in a worker
that is told an exchange's name, what was given, and what its site remembers, and says messages and
that memory back. The worker is a fresh interpreter, or forked before its parent holds a key
(`forked`), so nothing secret of its parent is in its memory. It loads the sites' data, and then
gives up everything but its one socket (`kernel`) before the first answer runs.

Who sees what: the worker sees the data and what clients are given, as an answer always does. What
it says is as untrusted as an answer always was, and the session checks it in the same way. Broken
by: a flaw in the kernel; whoever can trace the worker or its parent; code that the parent runs
itself, which is an algorithm's file while it is imported, its `init`, and its `round`, which each
client plays where models are recomputed: answers alone are isolated. The reasons are in
docs/adr/0023-isolated-answers.md.
"""
