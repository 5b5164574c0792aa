"""Show the whole way on one machine: a program, its costly calls as problems, kernels, a package, the program again."""
