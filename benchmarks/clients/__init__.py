"""Benchmark clients of others against our server: they run unmodified and report what we know."""
