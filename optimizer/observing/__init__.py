"""Submit the kernels that somebody writes into a folder."""
