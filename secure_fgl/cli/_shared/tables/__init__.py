"""Tables that several verbs print."""
