"""What the product costs and reaches, measured: each module is a command (`python -m benchmarks.NAME`)."""
