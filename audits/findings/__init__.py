"""What a reader should know about a run: rules, what somebody accepted, and what changed since."""
