"""Stand-ins for models that make faults of bookkeeping visible."""
