"""What the engine's own processes are told, beside what a job and a charter say."""
