"""Render a run as a document, and export its kernels."""
