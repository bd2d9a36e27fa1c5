"""The verification steps, one file per thing that is checked.

``papers`` files, plan and roster; ``ledgers`` chain, tree and heads; ``traffic`` what was sent,
received and opened; ``outcome`` metrics and models; ``renderings`` the report files.
``audits.steps`` runs them.
"""
