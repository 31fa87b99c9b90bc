"""The status page, one file without a network."""
