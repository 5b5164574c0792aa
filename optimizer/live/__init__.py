"""Serve the sockets of open pages."""
