"""Made-up runs for measuring the product itself. Nothing here was ever timed, and every row says so."""
