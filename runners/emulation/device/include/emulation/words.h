// The words of HIP and CUDA that plain C++ lacks, the indices of a thread, and launches.
#pragma once
// Headers of the standard library come first: some use names that become macros here.
#include <algorithm>
#include <cassert>
#include <climits>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <tuple>
#include <type_traits>
#include <utility>

#include <emulation/interface.h>

#define EMU_INLINE static inline __attribute__((always_inline))
// Plain code, without checks of its accesses.
#define EMU_QUIET __attribute__((no_sanitize("thread"), disable_sanitizer_instrumentation, noinline))
// Where in the source a function is called: the last two parameters of every collective.
#define EMU_PLACE unsigned emu_line = __builtin_LINE(), unsigned emu_column = __builtin_COLUMN()
#define EMU_SITE (emu_line << 10 | (emu_column & 1023))

#define __global__ __attribute__((noinline))
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
// `used`, since the compiler would take a variable to which nothing is written for zeros.
#define __shared__ static __attribute__((section("emu_lds"), used))
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(bytes) alignas(bytes)
// One address space serves the host's program.
#define address_space(number)
#define HIP_KERNEL_NAME(...) __VA_ARGS__
#define HIP_SYMBOL(name) (&(name))

namespace emu {

#define EMU_INDEX(name, member)                                                     \
  struct name {                                                                     \
    EMU_INLINE_MEMBER unsigned get_x() const { return emu_thread->member.x; }       \
    EMU_INLINE_MEMBER unsigned get_y() const { return emu_thread->member.y; }       \
    EMU_INLINE_MEMBER unsigned get_z() const { return emu_thread->member.z; }       \
    __declspec(property(get = get_x)) unsigned x;                                   \
    __declspec(property(get = get_y)) unsigned y;                                   \
    __declspec(property(get = get_z)) unsigned z;                                   \
    template <class Triple>                                                         \
    operator Triple() const { return Triple(get_x(), get_y(), get_z()); }           \
  };
#define EMU_INLINE_MEMBER __attribute__((always_inline))
EMU_INDEX(ThreadIndex, thread)
EMU_INDEX(BlockIndex, block)
EMU_INDEX(BlockSize, block_size)
EMU_INDEX(GridSize, grid_size)
#undef EMU_INDEX

template <class Kernel, class... Values>
struct Closure {
  Kernel kernel;
  std::tuple<Values...> values;
  static EMU_QUIET void run(const void* at) {
    // Each thread has its own copy of the arguments; the launch's lie in host memory, which kernels cannot read.
    alignas(Closure) unsigned char copy[sizeof(Closure)];
    std::memcpy(copy, at, sizeof copy);
    auto& self = *reinterpret_cast<Closure*>(copy);
    std::apply(self.kernel, self.values);
  }
};

}  // namespace emu

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

inline constexpr emu::ThreadIndex threadIdx{};
inline constexpr emu::BlockIndex blockIdx{};
inline constexpr emu::BlockSize blockDim{};
inline constexpr emu::GridSize gridDim{};
inline constexpr int warpSize = int(emu::WAVE);

namespace emu {

// One launch: `Launch(name, grid, block, …)(kernel, arguments…)`.
struct Launch {
  const char* name;
  Index grid, block;
  size_t lds_bytes;
  Launch(const char* name, dim3 grid, dim3 block, size_t lds_bytes = 0, const void* = nullptr)
      : name(name), grid{grid.x, grid.y, grid.z}, block{block.x, block.y, block.z}, lds_bytes(lds_bytes) {}
  template <class Kernel, class... Values>
  void operator()(Kernel kernel, Values... values) const {
    const Closure<Kernel, Values...> closure = {kernel, {values...}};
    emu_launch(name, grid, block, lds_bytes, &closure.run, &closure);
  }
};

}  // namespace emu

#define hipLaunchKernelGGL(kernel, grid, block, lds_bytes, stream, ...)          \
  ::emu::Launch(#kernel, grid, block, lds_bytes, stream)(                        \
      [&](auto... emu_values) EMU_QUIET { (kernel)(emu_values...); } __VA_OPT__(, ) __VA_ARGS__)
