"""Describe the machine's devices: their locks, their state and their measured ceilings."""
