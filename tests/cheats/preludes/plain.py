# @tune CHEAT 0 1 default=1
import torch

CHEAT = 1


