"""A language model of two million parameters that learns to play in the environment on a CPU core, from nothing."""
