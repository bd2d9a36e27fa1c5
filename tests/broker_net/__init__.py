"""Runs over real servers in network namespaces: bad lines, several servers, leaf nodes."""
