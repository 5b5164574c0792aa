"""Define the tools that a writer of kernels may call before it submits one."""
