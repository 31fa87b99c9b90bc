"""Every fixed arm, plain decoding and the live policy, side by side at every load."""
