"""The laws that a plug-in is held to, one after the other, and what they cannot see.

Each law asks one question of small runs on generated data. Our own algorithms are held to the same
ones: tests/laws takes from here what both look at. A law that is kept says that this question found
nothing, in these runs; what no law can find stands in `unseen`, and the leaks that tests plant
(tests/plugins) show it.
"""
