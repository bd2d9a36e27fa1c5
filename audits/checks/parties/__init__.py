"""Runs between organisations: who agreed to what, who left, and what one side alone can show.

``approvals``   the charter and its signatures, or those of a simulation's plan
``plan_approvals``   who approved a plan, where the policy names approvers
``left``        a ledger whose party never ended it
``own_side``    the steps of one party's own files, where the others' are not at hand

Nothing here compares two ledgers of a whole run; that is what the steps beside this folder do.
"""
