"""Import what torch imports at the first arithmetic on its meta device: 900 modules, which take as long as torch.

Oracles count the bytes of modules' calls there. A fork server runs this file.
"""

import torch

torch.empty(1, device="meta") + 1
