"""Lay out and check the memory that the compared processes compute in, and account for what they take."""
