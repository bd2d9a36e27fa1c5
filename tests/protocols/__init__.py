"""Tests of the law: messages, policy, plan, envelopes, ledger, and every role under attack."""
