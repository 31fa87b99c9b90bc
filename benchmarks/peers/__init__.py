"""Other engines, each in its own environment, measured beside ours in one interleaved run."""
