"""The engine: token ids in, token ids out. Knows no HTTP, no Ray and no policy."""
