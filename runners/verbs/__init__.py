"""Answer what a coding agent asks of a machine without a site."""
