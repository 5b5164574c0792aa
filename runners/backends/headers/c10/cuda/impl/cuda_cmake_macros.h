// Torch's build for CUDA generates this file; one for CPUs lacks it.
#pragma once
