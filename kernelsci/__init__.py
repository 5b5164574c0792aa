"""Install Kernel Scientist, and run it from one command line. The standard library is enough to import this."""
