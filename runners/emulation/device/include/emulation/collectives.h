// What the lanes of a wave and the threads of a block do together: barriers, shuffles, votes, DPP, readlane.
#pragma once
#include <emulation/words.h>

namespace emu {

EMU_INLINE unsigned lane() { return emu_thread->lane; }

// Bring a value to a collective of the lanes that reach it.
template <class T>
EMU_INLINE const Snapshot* converge(unsigned site, const T& value) {
  static_assert(sizeof(T) <= SLOT_BYTES);
  return emu_converge(site, &value, sizeof value);
}

template <class T>
EMU_QUIET T brought(const Snapshot* snapshot, unsigned lane) {
  T value;
  std::memcpy(&value, snapshot->slots[lane], sizeof value);
  return value;
}

EMU_INLINE bool active(const Snapshot* snapshot, unsigned lane) {
  return lane < WAVE && (snapshot->active >> lane & 1) != 0;
}

// The value of another lane, or zero if it takes no part, as ds_bpermute_b32 has it.
template <class T>
EMU_INLINE T from_lane(unsigned site, const T& value, unsigned source) {
  const Snapshot* snapshot = converge(site, value);
  return active(snapshot, source) ? brought<T>(snapshot, source) : T{};
}

EMU_INLINE uint64_t votes(unsigned site, int vote) {
  const Snapshot* snapshot = converge(site, vote);
  uint64_t found = 0;
  for (unsigned lane = 0; lane < WAVE; ++lane)
    if (active(snapshot, lane) && brought<int>(snapshot, lane) != 0) found |= uint64_t(1) << lane;
  return found;
}

EMU_INLINE uint64_t exec_mask(unsigned site) { return converge(site, char(0))->active; }

EMU_INLINE void wave_step(unsigned site) { converge(site, char(0)); }

// Where an instruction of DPP reads, by its control word (CDNA 3 ISA, "Data Parallel Processing"); -1: nowhere.
EMU_QUIET inline int dpp_source(unsigned control, int lane) {
  const int row = lane & ~15, within = lane & 15;
  const int count = control & 15;
  if (control <= 0xff) return (lane & ~3) + (control >> 2 * (lane & 3) & 3);
  if (control > 0x100 && control <= 0x10f) return within + count < 16 ? lane + count : -1;  // row_shl
  if (control > 0x110 && control <= 0x11f) return within >= count ? lane - count : -1;      // row_shr
  if (control > 0x120 && control <= 0x12f) return row + ((within - count) & 15);            // row_ror
  if (control >= 0x150 && control <= 0x15f) return row + count;                             // row_newbcast
  switch (control) {
    case 0x130: return lane < 63 ? lane + 1 : -1;   // wave_shl
    case 0x134: return (lane + 1) & 63;             // wave_rol
    case 0x138: return lane > 0 ? lane - 1 : -1;    // wave_shr
    case 0x13c: return (lane - 1) & 63;             // wave_ror
    case 0x140: return row + 15 - within;           // row_mirror
    case 0x141: return (lane & ~7) + 7 - (lane & 7);  // row_half_mirror
    case 0x142: return row > 0 ? row - 1 : -1;      // row_bcast15: the last lane of the row before
    case 0x143: return lane >= 32 ? 31 : -1;        // row_bcast31
  }
  emu_uncovered("this control word of DPP");
}

template <class T>
EMU_INLINE T dpp(unsigned site, T old, T value, unsigned control, unsigned rows, unsigned banks, bool zero) {
  const Snapshot* snapshot = converge(site, value);
  const unsigned at = lane();
  if ((rows >> (at / 16) & 1) == 0 || (banks >> (at / 4 % 4) & 1) == 0) return old;
  const int source = dpp_source(control, int(at));
  if (source >= 0 && active(snapshot, unsigned(source))) return brought<T>(snapshot, unsigned(source));
  return zero ? T{} : old;
}

// ds_swizzle_b32 by its offset: a permutation of each four lanes, or a mask of and, or, xor within 32.
EMU_QUIET inline unsigned swizzle_source(unsigned pattern, unsigned lane) {
  if (pattern >= 0xc000) emu_uncovered("the rotate and FFT modes of ds_swizzle");
  if (pattern & 0x8000) return (lane & ~3u) + (pattern >> 2 * (lane & 3) & 3);
  return (lane & ~31u) + ((((lane & 31) & (pattern & 31)) | (pattern >> 5 & 31)) ^ (pattern >> 10 & 31));
}

EMU_QUIET inline int permuted(const Snapshot* snapshot, unsigned lane) {
  int found = 0;
  for (unsigned source = 0; source < WAVE; ++source) {
    struct { int address, value; } pair;
    std::memcpy(&pair, snapshot->slots[source], sizeof pair);
    // Of several lanes that write to one, the last wins.
    if (active(snapshot, source) && unsigned(pair.address) / 4 % WAVE == lane) found = pair.value;
  }
  return found;
}

}  // namespace emu

// ---- barriers --------------------------------------------------------------------------------------------------

EMU_INLINE void __syncthreads(EMU_PLACE) { emu::emu_barrier(EMU_SITE, emu::BLOCK_BARRIER, 0); }
EMU_INLINE int __syncthreads_count(int vote, EMU_PLACE) {
  return int(emu::emu_barrier(EMU_SITE, emu::BLOCK_BARRIER, vote).count);
}
EMU_INLINE int __syncthreads_or(int vote, EMU_PLACE) {
  return emu::emu_barrier(EMU_SITE, emu::BLOCK_BARRIER, vote).count > 0;
}
EMU_INLINE int __syncthreads_and(int vote, EMU_PLACE) {
  const auto votes = emu::emu_barrier(EMU_SITE, emu::BLOCK_BARRIER, vote);
  return votes.count == votes.threads;
}
EMU_INLINE void __builtin_amdgcn_s_barrier(EMU_PLACE) { emu::emu_barrier(EMU_SITE, emu::RAW_BARRIER, 0); }
EMU_INLINE void __builtin_amdgcn_wave_barrier(EMU_PLACE) { emu::wave_step(EMU_SITE); }
EMU_INLINE void __syncwarp(unsigned long long = ~0ull, EMU_PLACE) { emu::wave_step(EMU_SITE); }
EMU_INLINE void __threadfence() {}
EMU_INLINE void __threadfence_block() {}
EMU_INLINE void __threadfence_system() {}
// A wave that has waited for its memory operations has done them in all of its lanes.
EMU_INLINE void __builtin_amdgcn_s_waitcnt(int, EMU_PLACE) { emu::wave_step(EMU_SITE); }
#define __builtin_amdgcn_fence(...) ((void)0)
#define __builtin_amdgcn_sched_barrier(...) ((void)0)
#define __builtin_amdgcn_sched_group_barrier(...) ((void)0)
#define __builtin_amdgcn_iglp_opt(...) ((void)0)
#define __builtin_amdgcn_s_setprio(...) ((void)0)
#define __builtin_amdgcn_s_sleep(...) (emu::emu_poll())
#define __builtin_amdgcn_s_nop(...) ((void)0)
#define __nanosleep(...) (emu::emu_poll())

// ---- lanes -----------------------------------------------------------------------------------------------------

EMU_INLINE unsigned __lane_id() { return emu::lane(); }
EMU_INLINE unsigned __builtin_amdgcn_mbcnt_lo(unsigned mask, unsigned add) {
  const unsigned lane = emu::lane();
  return add + unsigned(__builtin_popcount(lane < 32 ? mask & ((1u << lane) - 1) : mask));
}
EMU_INLINE unsigned __builtin_amdgcn_mbcnt_hi(unsigned mask, unsigned add) {
  const unsigned lane = emu::lane();
  return add + unsigned(lane < 32 ? 0 : __builtin_popcount(mask & ((1u << (lane - 32)) - 1)));
}
EMU_INLINE unsigned __builtin_amdgcn_wavefrontsize() { return emu::WAVE; }
#define EMU_AXIS(axis)                                                                                  \
  EMU_INLINE unsigned __builtin_amdgcn_workitem_id_##axis() { return emu::emu_thread->thread.axis; }    \
  EMU_INLINE unsigned __builtin_amdgcn_workgroup_id_##axis() { return emu::emu_thread->block.axis; }    \
  EMU_INLINE unsigned __builtin_amdgcn_workgroup_size_##axis() { return emu::emu_thread->block_size.axis; }
EMU_AXIS(x)
EMU_AXIS(y)
EMU_AXIS(z)
#undef EMU_AXIS

// A shuffle within groups of `width` lanes: from `source` there, or the lane's own value.
template <class T>
EMU_INLINE T __shfl(T value, int source, int width = int(emu::WAVE), EMU_PLACE) {
  const int lane = int(emu::lane());
  return emu::from_lane(EMU_SITE, value, unsigned((lane & ~(width - 1)) + (source & (width - 1))));
}
template <class T>
EMU_INLINE T __shfl_xor(T value, int mask, int width = int(emu::WAVE), EMU_PLACE) {
  const int lane = int(emu::lane()), source = lane ^ mask;
  return emu::from_lane(EMU_SITE, value, unsigned(source < ((lane + width) & ~(width - 1)) ? source : lane));
}
template <class T>
EMU_INLINE T __shfl_up(T value, unsigned delta, int width = int(emu::WAVE), EMU_PLACE) {
  const int lane = int(emu::lane()), source = lane - int(delta);
  return emu::from_lane(EMU_SITE, value, unsigned(source < (lane & ~(width - 1)) ? lane : source));
}
template <class T>
EMU_INLINE T __shfl_down(T value, unsigned delta, int width = int(emu::WAVE), EMU_PLACE) {
  const int lane = int(emu::lane());
  const bool inside = (lane & (width - 1)) + int(delta) < width;
  return emu::from_lane(EMU_SITE, value, unsigned(inside ? lane + int(delta) : lane));
}
#define EMU_SYNC(name, Number)                                                                               \
  template <class T>                                                                                         \
  EMU_INLINE T name##_sync(unsigned long long, T value, Number number, int width = int(emu::WAVE), EMU_PLACE) { \
    return name(value, number, width, emu_line, emu_column);                                                 \
  }
EMU_SYNC(__shfl, int)
EMU_SYNC(__shfl_xor, int)
EMU_SYNC(__shfl_up, unsigned)
EMU_SYNC(__shfl_down, unsigned)
#undef EMU_SYNC

using emu_mask = std::conditional_t<emu::WAVE == 64, unsigned long long, unsigned>;
EMU_INLINE emu_mask __ballot(int vote, EMU_PLACE) { return emu_mask(emu::votes(EMU_SITE, vote)); }
EMU_INLINE emu_mask __ballot_sync(unsigned long long, int vote, EMU_PLACE) { return emu_mask(emu::votes(EMU_SITE, vote)); }
EMU_INLINE unsigned long long __builtin_amdgcn_ballot_w64(bool vote, EMU_PLACE) { return emu::votes(EMU_SITE, vote); }
EMU_INLINE emu_mask __activemask(EMU_PLACE) { return emu_mask(emu::exec_mask(EMU_SITE)); }
EMU_INLINE unsigned long long __builtin_amdgcn_read_exec(EMU_PLACE) { return emu::exec_mask(EMU_SITE); }
EMU_INLINE int __any(int vote, EMU_PLACE) { return emu::votes(EMU_SITE, vote) != 0; }
EMU_INLINE int __any_sync(unsigned long long, int vote, EMU_PLACE) { return emu::votes(EMU_SITE, vote) != 0; }
EMU_INLINE int __all(int vote, EMU_PLACE) { return emu::votes(EMU_SITE, !vote) == 0; }
EMU_INLINE int __all_sync(unsigned long long, int vote, EMU_PLACE) { return emu::votes(EMU_SITE, !vote) == 0; }

template <class T>
EMU_INLINE T __builtin_amdgcn_readlane(T value, int lane, EMU_PLACE) {
  return emu::brought<T>(emu::converge(EMU_SITE, value), unsigned(lane) % emu::WAVE);
}
template <class T>
EMU_INLINE T __builtin_amdgcn_readfirstlane(T value, EMU_PLACE) {
  const emu::Snapshot* snapshot = emu::converge(EMU_SITE, value);
  return emu::brought<T>(snapshot, unsigned(__builtin_ctzll(snapshot->active)));
}
EMU_INLINE int __builtin_amdgcn_ds_bpermute(int address, int value, EMU_PLACE) {
  return emu::from_lane(EMU_SITE, value, unsigned(address) / 4 % emu::WAVE);
}
EMU_INLINE int __builtin_amdgcn_ds_permute(int address, int value, EMU_PLACE) {
  struct { int address, value; } pair = {address, value};
  return emu::permuted(emu::converge(EMU_SITE, pair), emu::lane());
}
EMU_INLINE int __builtin_amdgcn_ds_swizzle(int value, int pattern, EMU_PLACE) {
  return emu::from_lane(EMU_SITE, value, emu::swizzle_source(unsigned(pattern), emu::lane()));
}
template <class T>
EMU_INLINE T __builtin_amdgcn_update_dpp(T old, T value, int control, int rows, int banks, bool zero, EMU_PLACE) {
  return emu::dpp(EMU_SITE, old, value, unsigned(control), unsigned(rows), unsigned(banks), zero);
}
template <class T>
EMU_INLINE T __builtin_amdgcn_mov_dpp(T value, int control, int rows, int banks, bool zero, EMU_PLACE) {
  return emu::dpp(EMU_SITE, T{}, value, unsigned(control), unsigned(rows), unsigned(banks), zero);
}

#define EMU_REDUCE(name, result)                                                            \
  template <class T>                                                                        \
  EMU_INLINE T name(unsigned long long, T value, EMU_PLACE) {                               \
    const emu::Snapshot* snapshot = emu::converge(EMU_SITE, value);                         \
    T total = emu::brought<T>(snapshot, unsigned(__builtin_ctzll(snapshot->active)));       \
    for (unsigned lane = unsigned(__builtin_ctzll(snapshot->active)) + 1; lane < emu::WAVE; ++lane) { \
      if (!emu::active(snapshot, lane)) continue;                                           \
      const T other = emu::brought<T>(snapshot, lane);                                      \
      total = result;                                                                       \
    }                                                                                       \
    return total;                                                                           \
  }
EMU_REDUCE(__reduce_add_sync, total + other)
EMU_REDUCE(__reduce_min_sync, total < other ? total : other)
EMU_REDUCE(__reduce_max_sync, total > other ? total : other)
EMU_REDUCE(__reduce_and_sync, total& other)
EMU_REDUCE(__reduce_or_sync, total | other)
EMU_REDUCE(__reduce_xor_sync, total ^ other)
#undef EMU_REDUCE

// ---- memory to LDS ---------------------------------------------------------------------------------------------

// Each lane names its source; the data of the lanes land one behind the other, from the first active lane's address on.
EMU_INLINE void __builtin_amdgcn_global_load_lds(const void* from, void* to, unsigned size, int offset, unsigned, EMU_PLACE) {
  char* base;
  void* mine = to;
  const emu::Snapshot* snapshot = emu::converge(EMU_SITE, mine);
  base = static_cast<char*>(emu::brought<void*>(snapshot, unsigned(__builtin_ctzll(snapshot->active))));
  std::memcpy(base + offset + emu::lane() * size, static_cast<const char*>(from) + offset, size);
}
