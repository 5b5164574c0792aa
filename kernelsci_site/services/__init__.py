"""Run the servers of one machine: PostgreSQL and Redis from whatever is installed, and a supervisor for all parts."""
