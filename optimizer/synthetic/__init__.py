"""Generate synthetic runs for measuring the product itself. Nothing in them was timed, and every row says so."""
