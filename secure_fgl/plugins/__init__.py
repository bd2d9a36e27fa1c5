"""Algorithms, models and data from outside the package, each one file that somebody names.

A plug-in is trusted code: it runs in the process that names it, as a file of ours does. What holds
it are its name in the configuration, its digest in the plan, which every party compares with its
own copy before the copy is run and before any data is read, and the reader who approved that plan.
The list of modules that it may import is an early warning to its author and no boundary. The kernel
holds its answers alone, where they are isolated (`secure_fgl.isolation`): its import, `init` and
`round` run beside this client's keys.

`plugin` reads a file, `loading` runs it, and `in_use` finds those that are named and offers them to
the registries that find ours by folder. The reasons are in docs/adr/0033-plug-ins.md.
"""
