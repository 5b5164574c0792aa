// HIP and CUDA device code as a program of the host: one header for everything.
#pragma once
#include <emulation/words.h>
#include <emulation/vectors.h>
#include <emulation/floats.h>
#include <emulation/mathematics.h>
#include <emulation/collectives.h>
#include <emulation/atomics.h>
#include <emulation/matrix.h>
#include <emulation/host.h>
