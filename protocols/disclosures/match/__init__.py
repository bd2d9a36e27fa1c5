"""MATCH: who holds the same item, and the mean over those who do (docs/adr/0018).

Items become tags with the help of two tag servers; a matcher compares tags and forms cells; the
members of a cell learn its total. No party sees an item of another's.
"""

MEANING = "only which tags are equal"
BACK = True
GIVEN = 1
