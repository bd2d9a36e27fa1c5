"""Everything that would leave each party, computed before any data is touched.

The plan itself, who makes it from a form and a policy, and what each role learns, in words.
"""
