"""Offer the site to coding agents by the Model Context Protocol (streamable HTTP)."""
