"""A run as a document, and its best kernel as something to hand in."""
