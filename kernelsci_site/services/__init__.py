"""The servers of one machine: PostgreSQL and Redis from whatever is installed, and the supervisor over all parts."""
