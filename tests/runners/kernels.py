"""Define kernels for the softmax problem that the harness tests evaluate: an honest one, and each way to go wrong."""

from __future__ import annotations

# Headers of the C library alone, which are read in a hundredth of a second: `<thread>` and `<vector>` take the compiler
# a second for each kernel, and are named by those that need them.
HEADER = """
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void softmax(const float* x, float* out, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = x + r * cols;
    float top = in[0];
    for (int64_t c = 1; c < cols; ++c) top = __builtin_fmaxf(top, in[c]);
    double sum = 0;
    for (int64_t c = 0; c < cols; ++c) sum += __builtin_expf(in[c] - top);
    for (int64_t c = 0; c < cols; ++c) out[r * cols + c] = __builtin_expf(in[c] - top) / sum;
  }
}
"""


def kernel(body: str, *headers: str) -> str:
    """Return a softmax kernel whose body is `body`; `softmax(x, out, rows, cols)` is there to be called."""
    signature = 'extern "C" void softmax_rows(const float* x, float* out, int64_t rows, int64_t cols)'
    included = "".join(f"#include <{header}>\n" for header in headers)
    return f"{included}{HEADER}\n{signature} {{\n{body}\n}}\n"


HONEST = kernel("softmax(x, out, rows, cols);")
DOES_NOT_COMPILE = kernel("this is not C++")
SEGFAULT = kernel("*(volatile int*)8 = 1;")
ABORTS = kernel("__builtin_abort();")
LEAVES_WITH_ZERO = kernel("exit(0);", "stdlib.h")
LOOPS_FOR_EVER = kernel("for (volatile int i = 0;;) { i = i + 1; }")
PRINTS_GIGABYTES = kernel(
    "softmax(x, out, rows, cols); static char b[1 << 20]; memset(b, 'x', sizeof b);"
    " for (int i = 0; i < 4096; ++i) fwrite(b, 1, sizeof b, stdout);"
)
EATS_MEMORY = kernel("for (;;) { size_t n = 64 << 20; char* p = new char[n]; memset(p, 1, n); }")
RETURNS_NAN = kernel('for (int64_t i = 0; i < rows * cols; ++i) out[i] = __builtin_nanf("");')
RETURNS_ZEROS = kernel("memset(out, 0, rows * cols * 4);")
DOES_NOTHING = kernel("")
WRONG_IN_LAST_ROW = kernel("softmax(x, out, rows, cols); out[rows * cols - 1] += 0.01f;")
SKIPS_LAST_ROW = kernel("softmax(x, out, rows - 1, cols);")
WRITES_BEHIND = kernel("softmax(x, out, rows, cols); out[rows * cols] = 1;")
WRITES_BEFORE = kernel("softmax(x, out, rows, cols); out[-1] = 1;")
CHANGES_INPUT = kernel("softmax(x, out, rows, cols); const_cast<float*>(x)[0] += 1;")
FINISHES_LATER = kernel(
    "std::thread([=] { std::this_thread::sleep_for(std::chrono::milliseconds(3)); softmax(x, out, rows, cols); })"
    ".detach();",
    "chrono",
    "thread",
)
FINISHES_LATER_IN_A_CHILD = kernel(
    "if (fork() == 0) { usleep(3000); softmax(x, out, rows, cols); _exit(0); }",
)
REPLAYS_BY_SHAPE = kernel(
    "static std::vector<float> kept; static int64_t n = 0;"
    " if (n != rows * cols) { softmax(x, out, rows, cols); n = rows * cols; kept.assign(out, out + n); }"
    " else memcpy(out, kept.data(), n * 4);",
    "vector",
)
# The channel has the number that it had in the referee, which is high where the referee has many files open.
FORGES_ANSWERS = kernel(
    'for (int fd = 3; fd < 4096; ++fd) { const char* t = "{\\"ok\\": true, \\"inside_ns\\": [1]}";'
    " uint32_t n = strlen(t);"
    " unsigned char h[4] = {0, 0, 0, (unsigned char)n}; if (write(fd, h, 4) == 4 && write(fd, t, n)) {} }"
)
STOPS_THE_CLOCK = kernel(
    "static bool done = false; if (!done) { done = true; auto run = (int (*)(const char*))dlsym(RTLD_DEFAULT,"
    ' "PyRun_SimpleString"); auto hold = (int (*)())dlsym(RTLD_DEFAULT, "PyGILState_Ensure");'
    ' auto drop = (void (*)(int))dlsym(RTLD_DEFAULT, "PyGILState_Release"); int g = hold();'
    ' run("from candidate import native; import time\\nreal = time.perf_counter_ns\\n'
    "native.clock = lambda: real() // 50\\n"
    'time.perf_counter_ns = native.clock\\n"); drop(g); }'
    " for (int i = 0; i < 8; ++i) softmax(x, out, rows, cols);",
    "dlfcn.h",
)
NONDETERMINISTIC = kernel(
    "softmax(x, out, rows, cols); static int n = 0; ++n;"
    " for (int64_t i = 0; i < rows * cols; ++i) out[i] *= 1 + 1e-6f * (n % 7);"
)
WRONG_LATER = kernel(
    "static int n = 0; softmax(x, out, rows, cols); if (++n > 4 && rows * cols > 200000) out[0] += 1;"
)
