// What kernels compiled for the host call of the emulator, and nothing else of it. `runtime.cpp` defines it.
#pragma once
#include <cstddef>
#include <cstdint>

namespace emu {

#ifndef EMU_WAVE
#define EMU_WAVE 64
#endif

constexpr unsigned WAVE = EMU_WAVE;
// The most bytes that a lane gives to one collective: both factors of an MFMA.
constexpr unsigned SLOT_BYTES = 64;

struct Index {
  unsigned x, y, z;
};

// The thread that runs, as kernels see it.
struct Thread {
  Index thread, block, block_size, grid_size;
  unsigned flat, lane, wave;
};

// What the active lanes of a wave brought to a collective.
struct Snapshot {
  uint64_t active;
  alignas(16) unsigned char slots[64][SLOT_BYTES];
};

enum Barrier : unsigned { BLOCK_BARRIER, RAW_BARRIER };

struct Votes {
  unsigned count, threads;
};

extern "C" {
extern const Thread* emu_thread;

// Wait for the other lanes of the wave that come to the same place of the source, and return what all of them brought.
// Convergent, so that the optimiser makes no copies of the call that only some lanes reach.
__attribute__((convergent, noinline)) const Snapshot* emu_converge(unsigned site, const void* bytes, unsigned size);
// Wait for all threads of the block; return how many gave a vote that is not 0.
__attribute__((convergent, noinline)) Votes emu_barrier(unsigned site, unsigned kind, int vote);
// Note that a thread polls, so that others go on if it waits for them.
void emu_poll();
// Check a range that the sanitizer's instrumentation does not see.
void emu_check(const void* at, size_t size, int is_write);
void* emu_dynamic_lds();

typedef void (*Body)(const void* closure);
// Run a grid; return 0 or the error number of an impossible launch.
int emu_launch(const char* name, Index grid, Index block, size_t lds_bytes, Body body, const void* closure);
// Name a feature that is not covered, and end.
[[noreturn]] void emu_uncovered(const char* what);
[[noreturn]] void emu_fault(const char* kind, const char* what);

void* emu_allocate(size_t size);
int emu_free(void* at);
int emu_last_error(int clear);
}

}  // namespace emu
