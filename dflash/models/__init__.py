"""Target models: their checkpoints on disk and their forward passes."""
