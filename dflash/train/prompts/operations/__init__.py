"""Small functions put together from parts: what to keep, what to make of it, what to return."""
