"""The controller: numbers in, decisions out. Knows no engine, no edge, no clock and no chance."""
