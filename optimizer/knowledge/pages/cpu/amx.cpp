// One 16 x 16 tile of c = a * b in bf16 on AMX: eight tile registers of 16 rows x 64 bytes.
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cstdint>

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes_a_row[16] = {64, 64, 64};  // tiles 0 (c), 1 (a), 2 (b); at most 8 are in use
  uint8_t rows[16] = {16, 16, 16};
};

// Linux gives a process the 8 KiB of tile state on request only: ARCH_REQ_XCOMP_PERM (0x1023), XTILEDATA (18).
bool request_tiles() { return syscall(SYS_arch_prctl, 0x1023, 18) == 0; }

// a [16, k] bf16 row-major; b packed in pairs along k: [k / 2, 16 columns, 2]; c [16, 16] float32. k: multiple of 32.
__attribute__((target("amx-tile,amx-bf16"))) void tile_product(const uint16_t* a, const uint16_t* b, float* c, int64_t k) {
  const TileConfig config;
  _tile_loadconfig(&config);
  _tile_zero(0);
  for (int64_t p = 0; p < k; p += 32) {
    _tile_loadd(1, a + p, k * 2);        // 16 rows of 32 values; the stride is in bytes
    _tile_loadd(2, b + p * 16, 64);      // 16 rows of 16 pairs
    _tile_dpbf16ps(0, 1, 2);             // 16 x 16 x 32 multiply-adds
  }
  _tile_stored(0, c, 64);
  _tile_release();  // else every context switch saves the tiles
}

// --- check ---
#include <cpuid.h>
#include <cstring>
#include "../check.h"

bool has_amx() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 22 & 1) && (d >> 24 & 1);  // AMX-BF16, AMX-TILE
}

int main() {
  if (!has_amx() || !request_tiles()) return 77;
  const int k = 128;
  std::vector<uint16_t> a(16 * k), b(k * 16);
  std::vector<double> left(a.size()), right(b.size()), want(256);
  std::mt19937 engine(1);
  for (size_t i = 0; i < a.size(); ++i) {  // small integers are exact in bf16
    left[i] = int(engine() % 17) - 8, right[i] = int(engine() % 17) - 8;
    const float values[2] = {float(left[i]), float(right[i])};
    uint32_t bits[2];
    std::memcpy(bits, values, 8);
    a[i] = bits[0] >> 16;
    const int p = i / 16, j = i % 16;
    b[(p / 2 * 16 + j) * 2 + p % 2] = bits[1] >> 16;
  }
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 16; ++j)
      for (int p = 0; p < k; ++p) want[i * 16 + j] += left[i * k + p] * right[p * 16 + j];
  std::vector<float> c(256);
  tile_product(a.data(), b.data(), c.data(), k);
  return verdict(c, want, 0.0);
}
