"""What drafting brings: tokens per verify step, and speed beside plain decoding."""
