"""Name what the harness and the candidate's process agree on. The harness imports this without torch or Triton."""

# Names the absent device, as JSON, in the environment of a process that interprets a kernel (`pretended_device`).
PRETENDED_DEVICE = "KERNELSCI_PRETENDED_DEVICE"
