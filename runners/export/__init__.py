"""Turn a measured kernel into files that other people's programs can use.

`package` makes an installable Python package, `layouts` the layouts of other tools from the same files, `modelnew` one
KernelBench file and `patch` a change to a captured script. `runtime` is copied into what is exported: it needs torch
and nothing of this product.
"""
