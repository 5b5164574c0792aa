// Atomic operations. One thread runs at a time, so that they are plain ones; the builtins tell the emulator of them.
#pragma once
#include <emulation/floats.h>

#ifndef __HIP_MEMORY_SCOPE_SINGLETHREAD
#define __HIP_MEMORY_SCOPE_SINGLETHREAD 1
#define __HIP_MEMORY_SCOPE_WAVEFRONT 2
#define __HIP_MEMORY_SCOPE_WORKGROUP 3
#define __HIP_MEMORY_SCOPE_AGENT 4
#define __HIP_MEMORY_SCOPE_SYSTEM 5
#endif

namespace emu {

template <class T, class Change>
EMU_INLINE T atomically(T* at, Change change) {
  T before;
  __atomic_load(at, &before, __ATOMIC_RELAXED);
  T after = change(before);
  __atomic_store(at, &after, __ATOMIC_RELAXED);
  return before;
}

}  // namespace emu

#define EMU_ATOMIC(name, result)                                                                     \
  template <class T, class U>                                                                        \
  EMU_INLINE T name(T* at, U value) {                                                                \
    return emu::atomically(at, [&](T before) { return T(result); });                                 \
  }                                                                                                  \
  template <class T, class U>                                                                        \
  EMU_INLINE T name##_block(T* at, U value) { return name(at, value); }                              \
  template <class T, class U>                                                                        \
  EMU_INLINE T name##_system(T* at, U value) { return name(at, value); }
EMU_ATOMIC(atomicAdd, before + T(value))
EMU_ATOMIC(atomicSub, before - T(value))
EMU_ATOMIC(atomicExch, value)
EMU_ATOMIC(atomicMin, T(value) < before ? T(value) : before)
EMU_ATOMIC(atomicMax, before < T(value) ? T(value) : before)
EMU_ATOMIC(atomicAnd, before& T(value))
EMU_ATOMIC(atomicOr, before | T(value))
EMU_ATOMIC(atomicXor, before ^ T(value))
EMU_ATOMIC(atomicInc, before >= T(value) ? 0 : before + 1)
EMU_ATOMIC(atomicDec, before == 0 || before > T(value) ? T(value) : before - 1)
EMU_ATOMIC(unsafeAtomicAdd, before + T(value))
#undef EMU_ATOMIC
template <class T, class U, class V>
EMU_INLINE T atomicCAS(T* at, U wanted, V value) {
  return emu::atomically(at, [&](T before) { return before == T(wanted) ? T(value) : before; });
}
