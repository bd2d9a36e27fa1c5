"""The verification steps, one file per thing that is checked.

``documents`` files, plan and roster; ``ledgers`` chain, tree and heads; ``traffic`` what was sent
and received; ``opened`` and ``sharing`` cohorts, openings and the shares that they took; ``keys``
keys and budgets; ``outcome`` metrics and models; ``captured`` captured rounds; ``renderings`` the
report files.
``audits.evidence.steps`` runs them.
"""
