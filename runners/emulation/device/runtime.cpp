// Run the kernels of a grid on one processor: threads are fibers, a wave's collectives are meeting points, blocks follow
// each other. Every memory access is checked, through the calls that clang's thread sanitizer puts before it.
//
// A thread runs until it meets a collective or barrier. Once no lane of a wave can go on, the lanes that wait at one place
// of the source take part in that collective; of several places, the first in the program goes first (the heuristic of
// Collange's and Diamos' "thread frontiers", which reconverges lanes as compilers lay out structured programs).
// The schedule (forwards, backwards, shuffled) changes from call to call, and so does the content of fresh LDS: what depends
// on either is a fault.
#include <emulation/interface.h>

#include "symbols.h"

#include <dlfcn.h>
#include <link.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#include <algorithm>
#include <vector>

// A zone that nothing may touch, before all `__shared__` variables: this file is linked first. Behind them follows what holds
// our own state, which nothing may touch either.
static __attribute__((section("emu_lds"), used)) char emu_lds_red_zone[4096];

// The bounds of the section into which the header puts `__shared__`; absent if no kernel has any.
extern "C" __attribute__((weak, visibility("hidden"))) char __start_emu_lds[], __stop_emu_lds[];

namespace emu {
namespace {

constexpr unsigned MOST_THREADS = 1024;
constexpr size_t STACK_BYTES = 256 << 10, PAGE_BYTES = 4096;
constexpr size_t DEVICE_LDS_BYTES = EMU_LDS_BYTES;  // the most LDS that one block may have
constexpr size_t RED_ZONE_BYTES = 4096;
constexpr size_t MOST_WATCHED_BYTES = size_t(64) << 20;  // global memory in which races are looked for
constexpr size_t MOST_WATCHED_VARIABLE_BYTES = MOST_WATCHED_BYTES / 4;
constexpr unsigned MOST_PRINTED_BYTES = 16 << 10;
constexpr unsigned POLLS_BEFORE_YIELD = 64;
constexpr int EXIT_CODE = 86;

enum State : uint8_t { RUNNABLE, CONVERGING, AT_BARRIER, YIELDED, DONE };

#if defined(__x86_64__)
// Save the registers that a callee must preserve, change stacks, and restore those of the other side.
extern "C" void emu_switch(void** save, void* load);
asm(R"(
.text
.hidden emu_switch
.globl emu_switch
.type emu_switch,@function
emu_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emu_switch,.-emu_switch
)");
struct Context {
  void* stack_pointer;
};
void change(Context& from, Context& to) { emu_switch(&from.stack_pointer, to.stack_pointer); }
void prepare(Context& context, char* stack, void (*entry)()) {
  auto* top = reinterpret_cast<void**>(stack + STACK_BYTES);
  // As after a call: the stack is 8 bytes off a multiple of 16 at a function's entry.
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(entry);
  for (int saved = 0; saved < 6; ++saved) *--top = nullptr;
  context.stack_pointer = top;
}
#else
struct Context {
  ucontext_t registers;
};
void change(Context& from, Context& to) { swapcontext(&from.registers, &to.registers); }
void prepare(Context& context, char* stack, void (*entry)()) {
  getcontext(&context.registers);
  context.registers.uc_stack.ss_sp = stack;
  context.registers.uc_stack.ss_size = STACK_BYTES;
  context.registers.uc_link = nullptr;
  makecontext(&context.registers, entry, 0);
}
#endif

struct Fiber : Thread {
  Context context;
  char* stack;
  const char* place;  // return address of the call at which it waits
  unsigned site, polls;
  unsigned barrier_kind;
  int vote;
  unsigned brought_size;
  State state;
  alignas(16) unsigned char brought[SLOT_BYTES];
};

struct WaveState {
  Snapshot snapshot;
  uint32_t epoch;  // grows with every meeting of its lanes
};

// Who touched a byte last, and when: `epoch` counts barriers, `wave_epoch` meetings of the thread's wave.
// `reader` stands, with global memory, for a later block that has read what another one wrote; 0: none.
struct Touch {
  uint32_t epoch, wave_epoch;
  uint16_t thread, reader;
};
constexpr uint16_t SEVERAL_WAVES = 0xffff, SEVERAL_LANES = 0x8000, THREAD_MASK = 0x7fff;

struct LdsByte {
  Touch write, read;
  uint16_t rival;  // 1 + the thread that wrote another value than the last writer, with no barrier between; 0: none
};

// A byte of LDS that a thread is about to write, after another one has, with no barrier between.
struct Rewrite {
  LdsByte* byte;
  const char* at;
  char before;
  uint16_t thread;
};

// A block of the running launch: where its epochs begin, and that of its last atomic or volatile access to global memory
// (0: none).
struct BlockSpan {
  uint32_t begin, last_atomic;
  Index index;
};

struct Buffer {
  const char *begin, *end;
  char label[48];
  Touch* touches;  // of the last write to each byte; null if the buffer is too large to be watched
  bool allocated;
};

struct Segment {
  const char *begin, *end;
};

// A library that the loader mapped: what is looked for, and what was found.
struct Library {
  const void* inside;
  const char *path, *base;
};

// One grid at a time runs in a process, so that its state is global.
Fiber fibers[MOST_THREADS];
WaveState waves[MOST_THREADS / 32];
Context scheduler;
Fiber* running;
Thread host_thread;
bool in_kernel;

const char* kernel_name = "";
Body kernel_body;
const void* kernel_closure;
unsigned threads_in_block;
uint32_t epoch = 1, block_epoch = 1;  // never reset, so that old touches need not be erased
Votes votes;

unsigned schedule;  // 0 forwards, 1 backwards, others shuffled
uint64_t random_state = 1;

alignas(4096) char dynamic_lds[DEVICE_LDS_BYTES + RED_ZONE_BYTES];
size_t dynamic_lds_bytes;
LdsByte dynamic_bytes[DEVICE_LDS_BYTES];
LdsByte* static_bytes;
uint32_t launches;
size_t static_lds_bytes;  // of the `__shared__` variables that this launch has touched
bool said_uninitialised, said_ended;

std::vector<Buffer>& buffers() {
  static auto* all = new std::vector<Buffer>;
  return *all;
}
size_t last_buffer, watched_bytes;
// The variables of the file, in order of their addresses.
std::vector<Buffer>& file_variables() {
  static auto* all = new std::vector<Buffer>;
  return *all;
}
std::vector<BlockSpan>& blocks() {
  static auto* all = new std::vector<BlockSpan>;
  return *all;
}
std::vector<Rewrite>& rewrites() {
  static auto* all = new std::vector<Rewrite>;
  return *all;
}
// What the file holds of constants and code: kernels may read it.
std::vector<Segment>& constants() {
  static auto* all = new std::vector<Segment>;
  return *all;
}
// The `__shared__` variables of all kernels.
std::vector<Variable>& shared_variables() {
  static auto* all = new std::vector<Variable>;
  return *all;
}

unsigned printed_bytes;
int last_error;
double seconds_left = 20;

uint64_t random_bits() {
  // splitmix64
  uint64_t z = random_state += 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}

// Write without buffers or locks: this also runs in signal handlers.
[[noreturn]] void stop(const char* kind, const char* what, const Fiber* fiber) {
  char text[900];
  int length = snprintf(text, sizeof text, "\nemulation: %s: %s", kind, what);
  if (fiber != nullptr && length < 700)
    length += snprintf(text + length, sizeof text - length, " (kernel %s, thread (%u, %u, %u) of block (%u, %u, %u))",
                       kernel_name, fiber->thread.x, fiber->thread.y, fiber->thread.z, fiber->block.x, fiber->block.y,
                       fiber->block.z);
  text[length < int(sizeof text) - 1 ? length++ : length - 1] = '\n';
  fflush(stdout);
  ssize_t ignored = write(2, text, length);
  (void)ignored;
  _exit(EXIT_CODE);
}

// ---- faults of the processor ----------------------------------------------------------------------------------

void on_signal(int number, siginfo_t* info, void*) {
  if (!in_kernel) {
    // Host code of the candidate: let it end as it would without the emulator.
    signal(number, SIG_DFL);
    raise(number);
    return;
  }
  char text[160];
  const char* at = static_cast<const char*>(info->si_addr);
  if (number == SIGVTALRM) stop("timeout", "the kernel did not end in its time, or waits for another block", running);
  if (number == SIGFPE) stop("fault", "division of an integer by zero", running);
  if (number == SIGILL || number == SIGTRAP)
    stop("memory", "an index is outside its array, or the kernel stopped itself (trap)", running);
  if (number == SIGABRT) stop("fault", "the kernel stopped itself (assert or abort)", running);
  if (running != nullptr && at >= running->stack - PAGE_BYTES && at < running->stack)
    stop("fault", "the thread's stack overflowed: recursion without end, or 256 KiB of local arrays", running);
  snprintf(text, sizeof text, "illegal address %p", static_cast<const void*>(at));
  stop("memory", text, running);
}

void catch_signals() {
  static char alternative[64 << 10];
  stack_t stack = {};
  stack.ss_sp = alternative;
  stack.ss_size = sizeof alternative;
  sigaltstack(&stack, nullptr);
  struct sigaction action = {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  for (int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGVTALRM}) sigaction(number, &action, nullptr);
}

// Processor time of kernels, since the process may be stopped between calls.
void set_clock(double seconds) {
  itimerval timer = {};
  timer.it_value.tv_sec = time_t(seconds);
  timer.it_value.tv_usec = suseconds_t((seconds - double(time_t(seconds))) * 1e6);
  setitimer(ITIMER_VIRTUAL, &timer, nullptr);
}

double stop_clock() {
  itimerval none = {}, left = {};
  setitimer(ITIMER_VIRTUAL, &none, &left);
  return double(left.it_value.tv_sec) + double(left.it_value.tv_usec) * 1e-6;
}

// ---- memory ---------------------------------------------------------------------------------------------------

bool inside(const char* at, size_t size, const void* begin, const void* end) {
  return at >= static_cast<const char*>(begin) && at + size <= static_cast<const char*>(end);
}

int add_constants(dl_phdr_info* info, size_t, void* wanted) {
  auto& library = *static_cast<Library*>(wanted);
  bool ours = false;
  for (int number = 0; number < info->dlpi_phnum; ++number) {
    const auto& header = info->dlpi_phdr[number];
    const auto* begin = reinterpret_cast<const char*>(info->dlpi_addr + header.p_vaddr);
    if (header.p_type == PT_LOAD && library.inside >= begin && library.inside < begin + header.p_memsz) ours = true;
  }
  if (!ours) return 0;
  library.path = info->dlpi_name, library.base = reinterpret_cast<const char*>(info->dlpi_addr);
  for (int number = 0; number < info->dlpi_phnum; ++number) {
    const auto& header = info->dlpi_phdr[number];
    const auto* begin = reinterpret_cast<const char*>(info->dlpi_addr + header.p_vaddr);
    const bool constant = header.p_type == PT_LOAD && (header.p_flags & PF_W) == 0;
    if (constant || header.p_type == PT_GNU_RELRO) constants().push_back({begin, begin + header.p_memsz});
  }
  return 1;
}

template <class T>
T* zeros(size_t count) {
  void* at = mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) stop("uncovered", "not enough memory for the emulation", nullptr);
  return static_cast<T*>(at);
}

void add_buffer(std::vector<Buffer>& to, const char* begin, size_t size, const char* label, bool allocated, size_t most_watched) {
  Buffer buffer = {begin, begin + size, {}, nullptr, allocated};
  snprintf(buffer.label, sizeof buffer.label, "%s", label);
  if (watched_bytes + size <= most_watched) {
    buffer.touches = zeros<Touch>(size + 1);
    watched_bytes += size;
  }
  to.push_back(buffer);
}

void add_file_variable(const Variable& variable) {
  char label[48];
  snprintf(label, sizeof label, "the variable %s", variable.name);
  add_buffer(file_variables(), variable.begin, variable.end - variable.begin, label, false, MOST_WATCHED_VARIABLE_BYTES);
}

void find_variables() {
  Library library = {reinterpret_cast<void*>(&find_variables), "", nullptr};
  dl_iterate_phdr(add_constants, &library);
  std::vector<Variable> all;
  if (!read_variables(library.path, library.base, all)) stop("uncovered", "a library without a table of symbols", nullptr);
  for (const Variable& variable : all)
    if (inside(variable.begin, 1, __start_emu_lds, __stop_emu_lds))
      shared_variables().push_back(variable);
    else
      add_file_variable(variable);
}

void set_up() {
  static bool done;
  if (done) return;
  done = true;
  catch_signals();
  find_variables();
  if (__start_emu_lds != nullptr) static_bytes = zeros<LdsByte>(__stop_emu_lds - __start_emu_lds);
  // Each stack lies above a page that faults.
  char* stacks = zeros<char>(MOST_THREADS * (STACK_BYTES + PAGE_BYTES));
  for (unsigned t = 0; t < MOST_THREADS; ++t) {
    char* guard = stacks + t * (STACK_BYTES + PAGE_BYTES);
    mprotect(guard, PAGE_BYTES, PROT_NONE);
    fibers[t].stack = guard + PAGE_BYTES;
  }
  if (const char* limit = getenv("KERNELSCI_EMULATION_S")) seconds_left = atof(limit);
}

void drop_buffer(size_t number) {
  const Buffer& buffer = buffers()[number];
  if (buffer.touches != nullptr) {
    const size_t size = buffer.end - buffer.begin;
    munmap(buffer.touches, (size + 1) * sizeof(Touch));
    watched_bytes -= size;
  }
  buffers().erase(buffers().begin() + number);
  last_buffer = 0;
}

[[noreturn]] void stop_at_race(const char* what, const char* where, uint16_t other_thread) {
  const Fiber& other = fibers[other_thread & THREAD_MASK];
  char text[400];
  snprintf(text, sizeof text,
           "%s %s that thread (%u, %u, %u) of the same block touched, with no barrier between the two%s", what, where,
           other.thread.x, other.thread.y, other.thread.z,
           other.wave == running->wave
               ? " (lanes of one wave: use __syncthreads, a wave barrier, s_waitcnt or a volatile access)"
               : "");
  stop("race", text, running);
}

bool unordered(const Touch& touch) {
  if (touch.epoch != epoch) return false;
  const uint16_t thread = touch.thread & THREAD_MASK;
  if (touch.thread == SEVERAL_WAVES || fibers[thread].wave != running->wave) return true;
  return touch.wave_epoch == waves[running->wave].epoch;
}

Touch touch_now() { return {epoch, waves[running->wave].epoch, uint16_t(running->flat), 0}; }

// Note who wrote differing values to a byte with no barrier between. What a store changes is seen at the thread's next stop.
void settle_rewrites() {
  for (const Rewrite& rewrite : rewrites())
    if (*rewrite.at != rewrite.before) rewrite.byte->rival = uint16_t(rewrite.thread + 1);
  rewrites().clear();
}

// Whether the writes that a byte's rival took part in are ordered before one that comes now.
bool is_rival_past(const LdsByte& byte) {
  if (byte.write.epoch != epoch) return true;
  const bool same_wave = fibers[byte.rival - 1].wave == running->wave && fibers[byte.write.thread].wave == running->wave;
  return same_wave && byte.write.wave_epoch != waves[running->wave].epoch;
}

[[noreturn]] void stop_at_rivals(size_t at, const char* of, const LdsByte& byte) {
  const Index one = fibers[byte.rival - 1].thread, other = fibers[byte.write.thread].thread;
  char text[300];
  snprintf(text, sizeof text,
           "read byte %zu of the %s LDS, to which threads (%u, %u, %u) and (%u, %u, %u) of the same block wrote different"
           " values, with no barrier between the two",
           at, of, one.x, one.y, one.z, other.x, other.y, other.z);
  stop("race", text, running);
}

void note_write(LdsByte& byte, const char* at) {
  if (byte.write.epoch >= block_epoch && byte.write.thread != running->flat && unordered(byte.write))
    rewrites().push_back({&byte, at, *at, byte.write.thread});
  else if (byte.rival != 0 && is_rival_past(byte))
    byte.rival = 0;
  byte.write = touch_now();
}

void note_read(Touch& read) {
  const Touch now = touch_now();
  const bool same_time = read.epoch == now.epoch;
  if (!same_time || (read.thread != SEVERAL_WAVES && fibers[read.thread & THREAD_MASK].wave == running->wave &&
                     read.wave_epoch != now.wave_epoch)) {
    read = now;
    return;
  }
  if (read.thread == SEVERAL_WAVES || (read.thread & THREAD_MASK) == running->flat) return;
  const bool same_wave = fibers[read.thread & THREAD_MASK].wave == running->wave;
  read.thread = same_wave ? uint16_t(read.thread | SEVERAL_LANES) : SEVERAL_WAVES;
}

enum Access { READ, WRITE, ATOMIC };

// Say once that a byte of LDS was read before anything had written to it. That is no fault by itself: kernels load padding.
void note_uninitialised(size_t at, const char* of) {
  if (said_uninitialised) return;
  said_uninitialised = true;
  fprintf(stderr, "\nemulation: note: thread (%u, %u, %u) of block (%u, %u, %u) read byte %zu of the %s LDS, which nothing had written\n",
          running->thread.x, running->thread.y, running->thread.z, running->block.x, running->block.y, running->block.z, at, of);
}

void touch_lds(LdsByte* bytes, const char* lds, size_t offset, size_t size, Access access, const char* of) {
  for (size_t at = offset; at < offset + size; ++at) {
    LdsByte& byte = bytes[at];
    if (access == READ) {
      const bool written = byte.write.epoch >= block_epoch;
      if (!written) note_uninitialised(at, of);
      if (written && byte.write.thread != running->flat && unordered(byte.write)) {
        char where[80];
        snprintf(where, sizeof where, "byte %zu of the %s LDS", at, of);
        stop_at_race("read", where, byte.write.thread);
      }
      if (written && byte.rival != 0) stop_at_rivals(at, of, byte);
      note_read(byte.read);
      continue;
    }
    // Atomics order themselves; who mixes them with plain accesses is found by the schedules.
    if (access == ATOMIC) {
      byte.write = {block_epoch, 0, uint16_t(running->flat), 0};
      byte.rival = 0;
      continue;
    }
    if (byte.read.epoch >= block_epoch && byte.read.thread != running->flat && unordered(byte.read)) {
      char where[80];
      snprintf(where, sizeof where, "byte %zu of the %s LDS", at, of);
      stop_at_race("wrote", where, byte.read.thread == SEVERAL_WAVES ? 0 : byte.read.thread);
    }
    note_write(byte, lds + at);
  }
}

// The block of this launch that ran in an epoch.
const BlockSpan& block_of(uint32_t wanted) {
  const auto next = std::upper_bound(blocks().begin(), blocks().end(), wanted,
                                     [](uint32_t number, const BlockSpan& one) { return number < one.begin; });
  return next[-1];
}

// Whether another block of this launch wrote, and no atomic operations lie between: one of its own afterwards, and one of
// this block. Which address they are on is not looked at.
bool by_unordered_block(const Touch& touch) {
  if (touch.epoch < blocks().front().begin || touch.epoch >= block_epoch) return false;
  return blocks().back().last_atomic == 0 || block_of(touch.epoch).last_atomic < touch.epoch;
}

uint16_t reader_number() { return uint16_t(blocks().size() % 0xffff + 1); }

[[noreturn]] void stop_at_lost_update(size_t at, const Buffer& buffer, const Touch& touch) {
  const Index other = block_of(touch.epoch).index;
  char text[300];
  snprintf(text, sizeof text,
           "changed byte %zu of %s, which block (%u, %u, %u) wrote too: with no atomic operation, one of the changes is lost"
           " where the blocks run at once",
           at, buffer.label, other.x, other.y, other.z);
  stop("race", text, running);
}

void read_global(const Buffer& buffer, size_t at) {
  Touch& touch = buffer.touches[at];
  if (touch.epoch >= block_epoch && touch.thread != running->flat && unordered(touch)) {
    char where[120];
    snprintf(where, sizeof where, "byte %zu of %s", at, buffer.label);
    stop_at_race("read", where, touch.thread);
  }
  if (by_unordered_block(touch)) touch.reader = reader_number();
}

void write_global(const Buffer& buffer, size_t at) {
  Touch& touch = buffer.touches[at];
  const bool by_another_block = touch.epoch >= blocks().front().begin && touch.epoch < block_epoch;
  if (by_another_block && touch.reader == reader_number()) stop_at_lost_update(at, buffer, touch);
  touch = touch_now();
}

void touch_global(const Buffer& buffer, size_t offset, size_t size, Access access, bool orders_blocks) {
  if (orders_blocks) blocks().back().last_atomic = epoch;
  if (buffer.touches == nullptr || access == ATOMIC) return;
  for (size_t at = offset; at < offset + size; ++at) access == WRITE ? write_global(buffer, at) : read_global(buffer, at);
}

// What lies nearest to an address of none: `distance` is the largest number if there is nothing.
struct Nearest {
  const char *begin, *end;
  char label[64];
  size_t distance;
};

void consider(Nearest& nearest, const char* at, size_t size, const char* begin, const char* end, const char* kind, const char* name) {
  const size_t distance = at < begin ? begin - at : at + size - end;
  if (distance >= nearest.distance) return;
  nearest.begin = begin, nearest.end = end, nearest.distance = distance;
  snprintf(nearest.label, sizeof nearest.label, "%s%s", kind, name);
}

Nearest nearest_memory(const char* at, size_t size) {
  Nearest nearest = {nullptr, nullptr, {}, ~size_t(0)};
  for (const Buffer& buffer : buffers()) consider(nearest, at, size, buffer.begin, buffer.end, "", buffer.label);
  for (const Buffer& buffer : file_variables()) consider(nearest, at, size, buffer.begin, buffer.end, "", buffer.label);
  for (const Variable& one : shared_variables()) consider(nearest, at, size, one.begin, one.end, "the shared variable ", one.name);
  return nearest;
}

[[noreturn]] void stop_at_address(const char* at, size_t size, Access access) {
  char text[300];
  const char* verb = access == READ ? "read" : access == WRITE ? "wrote" : "changed";
  const Nearest nearest = nearest_memory(at, size);
  if (nearest.distance < (size_t(1) << 32)) {
    const bool before = at < nearest.begin;
    snprintf(text, sizeof text, "%s %zu bytes %s%td bytes from the start of %s, which has %td bytes", verb, size,
             before ? "before it, " : "at ", at - nearest.begin, nearest.label, nearest.end - nearest.begin);
  } else {
    snprintf(text, sizeof text, "%s %zu bytes at %p, which is no memory of the device", verb, size,
             static_cast<const void*>(at));
  }
  stop("memory", text, running);
}

// Add a `__shared__` variable to what this launch needs when it first touches it: those of other kernels do not count.
void count_static_lds(Variable& variable) {
  if (variable.launch == launches) return;
  variable.launch = launches;
  static_lds_bytes += variable.end - variable.begin;
  if (static_lds_bytes + dynamic_lds_bytes <= DEVICE_LDS_BYTES) return;
  char text[200];
  snprintf(text, sizeof text, "the launch asks for %zu bytes of LDS besides %zu static ones, the device has %zu a block",
           dynamic_lds_bytes, static_lds_bytes, DEVICE_LDS_BYTES);
  stop("launch", text, running);
}

void touch_static_lds(const char* at, size_t size, Access access) {
  Variable* variable = variable_at(shared_variables(), at);
  if (variable == nullptr || at + size > variable->end) stop_at_address(at, size, access);
  count_static_lds(*variable);
  touch_lds(static_bytes, __start_emu_lds, at - __start_emu_lds, size, access, "static");
}

bool in_other_stack(const char* at) {
  for (unsigned t = 0; t < threads_in_block; ++t)
    if (at >= fibers[t].stack && at < fibers[t].stack + STACK_BYTES) return true;
  return false;
}

// What the header reads for a thread, without the source's asking for it; and constants.
bool is_readable(const char* at, size_t size) {
  const Thread* thread = running;
  const Snapshot* snapshot = &waves[running->wave].snapshot;
  if (inside(at, size, thread, thread + 1) || inside(at, size, &emu_thread, &emu_thread + 1)) return true;
  if (inside(at, size, snapshot, snapshot + 1)) return true;
  for (const Segment& segment : constants())
    if (inside(at, size, segment.begin, segment.end)) return true;
  return false;
}

const Buffer* file_variable_at(const char* at, size_t size) {
  const auto next = std::upper_bound(file_variables().begin(), file_variables().end(), at,
                                     [](const char* address, const Buffer& one) { return address < one.begin; });
  return next != file_variables().begin() && at + size <= next[-1].end ? &next[-1] : nullptr;
}

// Check an access. Accesses to global memory that order blocks are atomic operations and volatile ones, with which blocks
// wait for each other.
void check(const void* address, size_t size, Access access, bool orders_blocks) {
  if (!in_kernel || running == nullptr) return;
  if (!rewrites().empty()) settle_rewrites();
  const auto* at = static_cast<const char*>(address);
  if (at >= running->stack && at + size <= running->stack + STACK_BYTES) return;
  auto& all = buffers();
  for (size_t tried = 0, number = last_buffer; tried < all.size(); ++tried, number = number + 1 < all.size() ? number + 1 : 0) {
    if (number >= all.size()) number = 0;
    Buffer& buffer = all[number];
    if (at >= buffer.begin && at + size <= buffer.end) {
      last_buffer = number;
      touch_global(buffer, at - buffer.begin, size, access, orders_blocks);
      return;
    }
  }
  if (inside(at, size, __start_emu_lds, __stop_emu_lds)) {
    touch_static_lds(at, size, access);
    return;
  }
  if (at >= dynamic_lds && at < dynamic_lds + sizeof dynamic_lds) {
    if (at + size > dynamic_lds + dynamic_lds_bytes) {
      char text[200];
      snprintf(text, sizeof text, "touched %zu bytes at %td of the dynamic LDS, of which the launch asked for %zu bytes",
               size, at - dynamic_lds, dynamic_lds_bytes);
      stop("memory", text, running);
    }
    touch_lds(dynamic_bytes, dynamic_lds, at - dynamic_lds, size, access, "dynamic");
    return;
  }
  if (const Buffer* variable = file_variable_at(at, size)) {
    touch_global(*variable, at - variable->begin, size, access, orders_blocks);
    return;
  }
  if (access == READ && is_readable(at, size)) return;
  if (in_other_stack(at)) stop("memory", "used a local variable of another thread", running);
  stop_at_address(at, size, access);
}

void check(const void* address, size_t size, Access access) { check(address, size, access, access == ATOMIC); }

// ---- scheduling -----------------------------------------------------------------------------------------------

void leave(State state) {
  settle_rewrites();
  running->state = state;
  Fiber* self = running;
  change(self->context, scheduler);
}

void enter_thread() {
  kernel_body(kernel_closure);
  settle_rewrites();
  running->state = DONE;
  change(running->context, scheduler);
  __builtin_unreachable();
}

void resume(Fiber& fiber) {
  running = &fiber;
  emu_thread = &fiber;
  fiber.state = RUNNABLE;
  change(scheduler, fiber.context);
  running = nullptr;
}

// Position `at` of `count` in the order of this schedule.
unsigned ordered(unsigned at, unsigned count, uint64_t seed) {
  if (schedule == 0) return at;
  if (schedule == 1) return count - 1 - at;
  // An odd multiplier permutes a power of two, so that the positions beyond `count` are skipped by cycling.
  unsigned size = 1;
  while (size < count) size *= 2;
  unsigned place = at;
  do place = unsigned(place * (seed | 1) + (seed >> 32)) & (size - 1);
  while (place >= count);
  return place;
}

bool gather(unsigned wave) {
  const unsigned first = wave * WAVE, end = std::min(first + WAVE, threads_in_block);
  const Fiber* leader = nullptr;
  for (unsigned t = first; t < end; ++t)
    if (fibers[t].state == CONVERGING && (leader == nullptr || fibers[t].place < leader->place)) leader = &fibers[t];
  if (leader == nullptr) return false;
  Snapshot& snapshot = waves[wave].snapshot;
  snapshot.active = 0;
  for (unsigned t = first; t < end; ++t) {
    Fiber& fiber = fibers[t];
    if (fiber.state != CONVERGING || fiber.site != leader->site) continue;
    snapshot.active |= uint64_t(1) << (t - first);
    memcpy(snapshot.slots[t - first], fiber.brought, fiber.brought_size);
    fiber.state = RUNNABLE;
  }
  ++waves[wave].epoch;
  return true;
}

// Run a wave until each of its lanes has ended or waits for other waves.
void run_wave(unsigned wave, uint64_t seed) {
  const unsigned first = wave * WAVE, count = std::min(WAVE, threads_in_block - first);
  do {
    for (unsigned at = 0; at < count; ++at) {
      Fiber& fiber = fibers[first + ordered(at, count, seed)];
      if (fiber.state == RUNNABLE) resume(fiber);
    }
  } while (gather(wave));
}

void describe_site(char* text, size_t size, const Fiber& fiber) {
  snprintf(text, size, "thread (%u, %u, %u) at the barrier of line %u", fiber.thread.x, fiber.thread.y, fiber.thread.z,
           fiber.site >> 10);
}

bool has_ended_lanes(unsigned wave) {
  const unsigned first = wave * WAVE, end = std::min(first + WAVE, threads_in_block);
  for (unsigned t = first; t < end; ++t)
    if (fibers[t].state == DONE) return true;
  return false;
}

// Say once that lanes of a wave wait at a barrier that others of it never reach, since they have ended. Devices go on: AMD's
// count waves, NVIDIA's threads that have not ended (since Volta). A branch around a barrier is undefined all the same.
void note_ended_lanes(const Fiber& fiber) {
  if (said_ended || !has_ended_lanes(fiber.wave)) return;
  said_ended = true;
  char where[100];
  describe_site(where, sizeof where, fiber);
  fprintf(stderr, "\nemulation: note: %s of block (%u, %u, %u) waits for no lanes of its wave that have ended: return before a"
          " barrier, but do not branch around it\n", where, fiber.block.x, fiber.block.y, fiber.block.z);
}

// Release the threads of a block from its barrier. They must all be at the same one, unless whole waves chose another.
void release_barrier() {
  Fiber* one = nullptr;
  votes = {};
  for (unsigned t = 0; t < threads_in_block; ++t) {
    Fiber& fiber = fibers[t];
    if (fiber.state != AT_BARRIER) continue;
    if (one == nullptr) one = &fiber;
    note_ended_lanes(fiber);
    const bool may_differ = one->barrier_kind == RAW_BARRIER && fiber.barrier_kind == RAW_BARRIER && one->wave != fiber.wave;
    if (fiber.site != one->site && !may_differ) {
      char text[300], here[100], there[100];
      describe_site(here, sizeof here, *one);
      describe_site(there, sizeof there, fiber);
      snprintf(text, sizeof text, "threads of one block wait at different barriers: %s, %s", here, there);
      stop("barrier", text, one);
    }
    if (fiber.barrier_kind == RAW_BARRIER) one = &fiber;
    votes.count += fiber.vote != 0;
    ++votes.threads;
  }
  for (unsigned t = 0; t < threads_in_block; ++t)
    if (fibers[t].state == AT_BARRIER) fibers[t].state = RUNNABLE;
  ++epoch;
}

void poison_lds() {
  // NaN in half, bfloat16 and float; then NaN in fp8 (fnuz), a tiny float; then noise.
  const int fill = schedule == 0 ? 0xff : schedule == 1 ? 0x80 : int(random_bits() & 0xff);
  if (__start_emu_lds != nullptr) memset(__start_emu_lds, fill, __stop_emu_lds - __start_emu_lds);
  memset(dynamic_lds, fill, dynamic_lds_bytes);
}

void set_threads(Index block, Index block_size, Index grid_size) {
  unsigned flat = 0;
  for (unsigned z = 0; z < block_size.z; ++z)
    for (unsigned y = 0; y < block_size.y; ++y)
      for (unsigned x = 0; x < block_size.x; ++x, ++flat) {
        Fiber& fiber = fibers[flat];
        static_cast<Thread&>(fiber) = {{x, y, z}, block, block_size, grid_size, flat, flat % WAVE, flat / WAVE};
        fiber.state = RUNNABLE;
        fiber.polls = 0;
        prepare(fiber.context, fiber.stack, enter_thread);
      }
}

unsigned count_in(State state) {
  unsigned count = 0;
  for (unsigned t = 0; t < threads_in_block; ++t) count += fibers[t].state == state;
  return count;
}

void run_block(Index block, Index block_size, Index grid_size) {
  ++epoch;
  block_epoch = epoch;
  blocks().push_back({epoch, 0, block});
  poison_lds();
  set_threads(block, block_size, grid_size);
  const unsigned wave_count = (threads_in_block + WAVE - 1) / WAVE;
  for (;;) {
    const uint64_t seed = random_bits();
    for (unsigned at = 0; at < wave_count; ++at) run_wave(ordered(at, wave_count, seed), seed);
    if (count_in(YIELDED) > 0) {
      for (unsigned t = 0; t < threads_in_block; ++t)
        if (fibers[t].state == YIELDED) fibers[t].state = RUNNABLE;
      continue;
    }
    if (count_in(AT_BARRIER) == 0) return;
    release_barrier();
  }
}

int launch_error(Index grid, Index block, size_t lds_bytes) {
  const uint64_t threads = uint64_t(block.x) * block.y * block.z;
  char text[200];
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || threads == 0 || threads > MOST_THREADS || grid.y > 65535 || grid.z > 65535) {
    snprintf(text, sizeof text, "kernel %s: a grid of (%u, %u, %u) blocks of (%u, %u, %u) threads cannot be launched", kernel_name,
             grid.x, grid.y, grid.z, block.x, block.y, block.z);
    stop("launch", text, nullptr);
  }
  if (lds_bytes > DEVICE_LDS_BYTES) {
    snprintf(text, sizeof text, "kernel %s: the launch asks for %zu bytes of LDS, the device has %zu a block", kernel_name,
             lds_bytes, DEVICE_LDS_BYTES);
    stop("launch", text, nullptr);
  }
  return 0;
}

}  // namespace

extern "C" {

const Thread* emu_thread = &host_thread;

int emu_launch(const char* name, Index grid, Index block, size_t lds_bytes, Body body, const void* closure) {
  set_up();
  if (in_kernel) stop("uncovered", "a kernel that launches kernels", running);
  kernel_name = name;
  if (int error = launch_error(grid, block, lds_bytes)) return error;
  kernel_body = body, kernel_closure = closure;
  threads_in_block = block.x * block.y * block.z;
  dynamic_lds_bytes = lds_bytes;
  static_lds_bytes = 0;
  ++launches;
  blocks().clear();
  in_kernel = true;
  set_clock(seconds_left);
  const uint64_t blocks = uint64_t(grid.x) * grid.y * grid.z;
  const uint64_t seed = random_bits();
  for (uint64_t at = 0; at < blocks; ++at) {
    const uint64_t number = blocks >> 31 ? at : ordered(unsigned(at), unsigned(blocks), seed);
    const Index where = {unsigned(number % grid.x), unsigned(number / grid.x % grid.y),
                         unsigned(number / grid.x / grid.y)};
    run_block(where, block, grid);
  }
  seconds_left = stop_clock();
  in_kernel = false;
  emu_thread = &host_thread;
  return 0;
}

const Snapshot* emu_converge(unsigned site, const void* bytes, unsigned size) {
  if (running == nullptr) stop("uncovered", "a collective outside a kernel", nullptr);
  running->site = site;
  running->place = static_cast<const char*>(__builtin_return_address(0));
  running->brought_size = size;
  memcpy(running->brought, bytes, size);
  leave(CONVERGING);
  return &waves[running->wave].snapshot;
}

Votes emu_barrier(unsigned site, unsigned kind, int vote) {
  if (running == nullptr) stop("uncovered", "a barrier outside a kernel", nullptr);
  running->site = site, running->barrier_kind = kind, running->vote = vote;
  leave(AT_BARRIER);
  return votes;
}

void emu_poll() {
  if (running != nullptr && ++running->polls % POLLS_BEFORE_YIELD == 0) leave(YIELDED);
}

void emu_check(const void* at, size_t size, int is_write) { check(at, size, is_write ? WRITE : READ); }

void* emu_dynamic_lds() { return dynamic_lds; }

void emu_uncovered(const char* what) { stop("uncovered", what, running); }
void emu_fault(const char* kind, const char* what) { stop(kind, what, running); }

void* emu_allocate(size_t size) {
  set_up();
  // Memory that nobody has written to holds NaNs, as other allocations leave anything there.
  const size_t whole = size + 2 * RED_ZONE_BYTES;
  char* at = static_cast<char*>(aligned_alloc(256, (whole + 255) / 256 * 256));
  if (at == nullptr) return nullptr;
  memset(at, 0xff, whole);
  char label[48];
  snprintf(label, sizeof label, "an allocation of %zu bytes", size);
  add_buffer(buffers(), at + RED_ZONE_BYTES, size, label, true, MOST_WATCHED_BYTES);
  return at + RED_ZONE_BYTES;
}

int emu_free(void* at) {
  for (size_t number = 0; number < buffers().size(); ++number)
    if (buffers()[number].begin == at && buffers()[number].allocated) {
      drop_buffer(number);
      free(static_cast<char*>(at) - RED_ZONE_BYTES);
      return 0;
    }
  return at == nullptr ? 0 : 1;
}

int emu_last_error(int clear) {
  const int error = last_error;
  if (clear) last_error = 0;
  return error;
}

// ---- for the process that calls the library -------------------------------------------------------------------

// Begin a call: choose its schedule, and forget the buffers of the call before.
__attribute__((visibility("default"))) void emu_begin_call(unsigned number) {
  set_up();
  schedule = number % 3;
  random_state = number;
  for (size_t at = buffers().size(); at-- > 0;)
    if (!buffers()[at].allocated) drop_buffer(at);
}

__attribute__((visibility("default"))) void emu_add_buffer(const void* begin, size_t size, const char* label) {
  add_buffer(buffers(), static_cast<const char*>(begin), size, label, false, MOST_WATCHED_BYTES);
}

// ---- what the sanitizer's instrumentation calls ---------------------------------------------------------------

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_ignore_thread_begin() {}
void __tsan_ignore_thread_end() {}
void __tsan_vptr_read(void**) {}
void __tsan_vptr_update(void**, void*) {}

#define PLAIN(size)                                                                 \
  void __tsan_read##size(void* at) { check(at, size, READ); }                       \
  void __tsan_write##size(void* at) { check(at, size, WRITE); }                     \
  void __tsan_unaligned_read##size(void* at) { check(at, size, READ); }             \
  void __tsan_unaligned_write##size(void* at) { check(at, size, WRITE); }           \
  void __tsan_volatile_read##size(void* at) { in_step(at, size, READ); }            \
  void __tsan_volatile_write##size(void* at) { in_step(at, size, WRITE); }          \
  void __tsan_unaligned_volatile_read##size(void* at) { in_step(at, size, READ); }  \
  void __tsan_unaligned_volatile_write##size(void* at) { in_step(at, size, WRITE); }

// A wave's lanes go in step, and volatile accesses are how kernels rely on it: all lanes meet before each.
static inline __attribute__((always_inline)) void in_step(void* at, size_t size, Access access) {
  if (running == nullptr) return;
  emu_poll();
  running->site = unsigned(reinterpret_cast<uintptr_t>(__builtin_return_address(0)));
  running->place = static_cast<const char*>(__builtin_return_address(0));
  running->brought_size = 0;
  leave(CONVERGING);
  check(at, size, access, true);
}

PLAIN(1)
PLAIN(2)
PLAIN(4)
PLAIN(8)
PLAIN(16)

void __tsan_read_range(void* at, size_t size) { check(at, size, READ); }
void __tsan_write_range(void* at, size_t size) { check(at, size, WRITE); }
void* __tsan_memcpy(void* to, const void* from, size_t size) {
  check(from, size, READ);
  check(to, size, WRITE);
  return memcpy(to, from, size);
}
void* __tsan_memmove(void* to, const void* from, size_t size) {
  check(from, size, READ);
  check(to, size, WRITE);
  return memmove(to, from, size);
}
void* __tsan_memset(void* to, int value, size_t size) {
  check(to, size, WRITE);
  return memset(to, value, size);
}

// One fiber runs at a time, so that plain operations are atomic.
#define ATOMICS(bits)                                                                                              \
  using Bits##bits = uint##bits##_t;                                                                               \
  Bits##bits __tsan_atomic##bits##_load(const volatile Bits##bits* at, int) {                                      \
    emu_poll();                                                                                                    \
    check(const_cast<const Bits##bits*>(at), bits / 8, ATOMIC);                                                    \
    return *at;                                                                                                    \
  }                                                                                                                \
  void __tsan_atomic##bits##_store(volatile Bits##bits* at, Bits##bits value, int) {                               \
    check(const_cast<const Bits##bits*>(at), bits / 8, ATOMIC);                                                    \
    *at = value;                                                                                                   \
  }                                                                                                                \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile Bits##bits* at, Bits##bits* wanted, Bits##bits value, \
                                                    int, int) {                                                    \
    emu_poll();                                                                                                    \
    check(const_cast<const Bits##bits*>(at), bits / 8, ATOMIC);                                                    \
    const Bits##bits before = *at;                                                                                 \
    if (before == *wanted) return *at = value, 1;                                                                  \
    return *wanted = before, 0;                                                                                    \
  }                                                                                                                \
  int __tsan_atomic##bits##_compare_exchange_weak(volatile Bits##bits* at, Bits##bits* wanted, Bits##bits value,   \
                                                  int, int) {                                                      \
    return __tsan_atomic##bits##_compare_exchange_strong(at, wanted, value, 0, 0);                                 \
  }                                                                                                                \
  Bits##bits __tsan_atomic##bits##_compare_exchange_val(volatile Bits##bits* at, Bits##bits wanted,                \
                                                        Bits##bits value, int, int) {                              \
    __tsan_atomic##bits##_compare_exchange_strong(at, &wanted, value, 0, 0);                                       \
    return wanted;                                                                                                 \
  }                                                                                                                \
  CHANGE(bits, exchange, value)                                                                                    \
  CHANGE(bits, fetch_add, before + value)                                                                          \
  CHANGE(bits, fetch_sub, before - value)                                                                          \
  CHANGE(bits, fetch_and, before & value)                                                                          \
  CHANGE(bits, fetch_or, before | value)                                                                           \
  CHANGE(bits, fetch_xor, before ^ value)                                                                          \
  CHANGE(bits, fetch_nand, ~(before & value))

#define CHANGE(bits, name, result)                                                                       \
  Bits##bits __tsan_atomic##bits##_##name(volatile Bits##bits* at, Bits##bits value, int) {              \
    emu_poll();                                                                                          \
    check(const_cast<const Bits##bits*>(at), bits / 8, ATOMIC);                                          \
    const Bits##bits before = *at;                                                                       \
    *at = Bits##bits(result);                                                                            \
    return before;                                                                                       \
  }

ATOMICS(8)
ATOMICS(16)
ATOMICS(32)
ATOMICS(64)

void __tsan_atomic_thread_fence(int) {}
void __tsan_atomic_signal_fence(int) {}

// ---- printing: a kernel may print, within a limit ---------------------------------------------------------------

__attribute__((visibility("hidden"))) int printf(const char* format, ...) {
  if (printed_bytes >= MOST_PRINTED_BYTES) return 0;
  va_list arguments;
  va_start(arguments, format);
  const int written = vfprintf(stdout, format, arguments);
  va_end(arguments);
  if (written > 0) printed_bytes += unsigned(written);
  if (printed_bytes >= MOST_PRINTED_BYTES) fputs("\n(the rest of what the kernel prints is left out)\n", stdout);
  return written;
}
__attribute__((visibility("hidden"))) int puts(const char* text) { return printf("%s\n", text); }
}

}  // namespace emu
