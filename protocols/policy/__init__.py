"""What the data owner allows: the policy, its guards, and which chains of guards are a protection.

Everything that is not allowed is refused. What a policy comes to for an algorithm is in `plan`.
"""
