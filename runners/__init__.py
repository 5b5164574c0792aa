"""Measure kernels: problems, backends, sandbox and harness, without Django."""

import atexit
import gc

# An interpreter that ends collects garbage several times over. With torch or the site loaded that is a quarter of the
# processor time of a short command, in vain: the system takes all memory back.
atexit.register(gc.freeze)
