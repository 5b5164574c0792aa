"""Serve the HTML pages."""
