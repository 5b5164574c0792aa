"""Start sandboxed processes, keep some of them warm, and talk to them."""
