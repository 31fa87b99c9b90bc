"""Scripts that print the tables of docs/performance.md and check the figures that must hold."""
