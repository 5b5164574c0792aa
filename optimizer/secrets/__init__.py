"""Encrypt secrets at rest, and keep them out of texts."""
