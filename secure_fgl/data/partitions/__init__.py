"""How a data set is shared out among clients, one rule per file; the folder is the registry.

A rule's file is called like the rule and declares `KINDS`, the kinds of data that it can share out
("node", "graph", "rating"), and one of

* `assign(whole, clients, rng, **options)`: the owner of every record, int64 (records,) in
  [0, clients), or -1 for nobody; roles stay as they were drawn over the whole set;
* `cut(whole, masks, clients, rng, **options)`: a `Cut` for every client, where records may be held
  by several clients or get their roles from the rule.

Options are named, have defaults, and are checked against them. A rule that gives records roles of
its own says `OWN_SPLIT = True`: a plan then bounds a client's training records by all there are.
A rule that gives each record to one client, and clients about as many, says `EVEN = True`: a plan
then bounds them by a client's share.
A rule that gives every client the whole graph says `SHARED_GRAPH = True`, and plans warn of it.
A rule that leaves each client its nodes' edges to other clients' nodes, by number, says
`LINKED = True`; one that does so where the option `linked` is true says `LINKABLE = True`.
A rule whose cuts have a `common` test graph says `COMMON_TEST = True`: models are scored on it too.
"""
