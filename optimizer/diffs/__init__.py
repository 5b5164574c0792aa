"""Compare two texts line by line, and carry positions from one to the other."""
