#pragma once
#include <emulation/emulation.h>
