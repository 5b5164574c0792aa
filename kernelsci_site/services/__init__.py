"""The servers of one machine: PostgreSQL and Redis from whatever is installed, the supervisor over all parts."""
