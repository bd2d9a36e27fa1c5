"""Released metrics, written besides the run folder: to TensorBoard or MLflow.

What goes there is what ``metrics.jsonl`` holds, round by round, and public names of the plan. No
message of a client, no model, no reference that only a simulator knows, and nothing of this
machine or its user is handed to a sink.
"""
