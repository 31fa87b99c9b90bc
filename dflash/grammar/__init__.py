"""What an output must match: as text, compiled, and as masks over the vocabulary."""
