"""The API under /api/v1. Routers are added in `optimizer.api.root`."""
