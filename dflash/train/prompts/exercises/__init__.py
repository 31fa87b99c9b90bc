"""Exercises in programming, each with a solution of our own that computes its examples."""
