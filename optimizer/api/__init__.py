"""Serve the API under /api/v1. `optimizer.api.root` adds the routers."""
