"""Offer the verbs of this machine to coding agents by the Model Context Protocol."""
