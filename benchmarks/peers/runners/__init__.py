"""One engine a file, each run by its own environment's Python and spoken to in JSON lines."""
