"""What stands before every route: request ids, keys, limits of a key, deadlines, body sizes."""
