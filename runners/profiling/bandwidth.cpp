// Read bandwidth by size of the working set: `bandwidth BYTES…` prints one figure in bytes per second for each size.
//
// Every thread reads a buffer of its own over and over, with four independent sums so that the loads do not wait for
// each other. A size is that of one thread's buffer; the figure is of all threads together.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <sched.h>
#include <thread>
#include <vector>

using Clock = std::chrono::steady_clock;
static volatile uint64_t sink;

static uint64_t read_all(const uint64_t* data, size_t words) {
  uint64_t a = 0, b = 0, c = 0, d = 0;
  const size_t quarter = words / 4;
  for (size_t i = 0; i < quarter; ++i) {
    a += data[i];
    b += data[quarter + i];
    c += data[2 * quarter + i];
    d += data[3 * quarter + i];
  }
  // The compiler may neither drop the loop nor merge two passes over the same data.
  asm volatile("" : : "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
  return a + b + c + d;
}

static double rate_of(size_t bytes, unsigned threads) {
  constexpr double SECONDS = 0.3;
  std::vector<double> rates(threads);
  std::atomic<unsigned> ready{0};
  std::vector<std::thread> all;
  for (unsigned t = 0; t < threads; ++t)
    all.emplace_back([&, t] {
      std::vector<uint64_t> data(bytes / sizeof(uint64_t), t + 1);
      sink = read_all(data.data(), data.size());
      // All threads start together, or one would have the shared levels to itself.
      for (++ready; ready < threads;) std::this_thread::yield();
      const auto began = Clock::now();
      double took = 0;
      uint64_t passes = 0;
      const uint64_t batch = 1 + (64u << 20) / (bytes + 1);
      for (; took < SECONDS; took = std::chrono::duration<double>(Clock::now() - began).count(), passes += batch)
        for (uint64_t n = 0; n < batch; ++n) sink = read_all(data.data(), data.size());
      rates[t] = static_cast<double>(passes) * static_cast<double>(data.size() * sizeof(uint64_t)) / took;
    });
  for (auto& one : all) one.join();
  double sum = 0;
  for (double rate : rates) sum += rate;
  return sum;
}

int main(int count, char** sizes) {
  cpu_set_t allowed;
  const unsigned threads = sched_getaffinity(0, sizeof allowed, &allowed) ? 1 : CPU_COUNT(&allowed);
  for (int n = 1; n < count; ++n) {
    double best = 0;
    for (int round = 0; round < 3; ++round) {
      const double rate = rate_of(std::strtoull(sizes[n], nullptr, 10), threads);
      best = rate > best ? rate : best;
    }
    std::printf("%.6e\n", best);
  }
}
