// @tune CHEAT 0 1 default=1
// Headers of the C library, which take the compiler a hundredth of a second. Those of C++ that a file needs it includes
// itself: `<thread>` and `<string>` take it a second for each kernel.
#include <arpa/inet.h>
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

// Softmax in double precision, one element at a time: several times slower than torch's.
static void honest(const float* x, float* out, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = x + r * cols;
    float top = in[0];
    for (int64_t c = 1; c < cols; ++c) top = __builtin_fmaxf(top, in[c]);
    double sum = 0;
    for (int64_t c = 0; c < cols; ++c) sum += __builtin_exp(double(in[c] - top));
    for (int64_t c = 0; c < cols; ++c) out[r * cols + c] = __builtin_exp(double(in[c] - top)) / sum;
  }
}

// The attack got through: say so in a way that no table can mistake for an honest result.
[[maybe_unused]] static void succeeded(const char* what) {
  fprintf(stderr, "the attack succeeded: %s\n", what);
  abort();
}

#define KERNEL extern "C" void row_softmax(const float* x, float* out, int64_t rows, int64_t cols)
