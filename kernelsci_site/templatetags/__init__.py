"""Provide the template tags of the site itself."""
