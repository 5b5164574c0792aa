"""Sign verdicts with the installation's key, so that others can check who measured what, and measure it again."""
