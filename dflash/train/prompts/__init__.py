"""Prompts of our own making: seeded, broad, and apart from every published task."""
