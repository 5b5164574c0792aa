"""Roles of the papers' agents: what they are asked, and what they may answer."""
