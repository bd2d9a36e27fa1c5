"""What was captured of clients in rounds, and what they would say on other draws of records."""
