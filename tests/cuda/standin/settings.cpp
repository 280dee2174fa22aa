// Settings, counters, the memory of the imaginary cards, and the functions by which tests reach them.
#include "settings.h"

#include <sys/mman.h>

#include <array>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

namespace standin {

std::atomic<long long> counters[kCounters];
Memory memory;
thread_local int current_device = 0;

namespace {

constexpr std::size_t kGranularity = std::size_t{2} << 20;  // the driver gives memory in pages of 2 MiB
constexpr int kMostDevices = 64;

struct Named {
  const char* name;
  long long value;
};

// The defaults are near an A100 with 80 GB. At capability 9.0 and above torch prefers cuDNN for attention in bf16, which
// would need graphs of cuDNN.
constexpr Named kDefaults[kSettings] = {
    {"devices", 1}, {"memory", 85520809984}, {"context", 524288000}, {"other", 0},
    {"capability", 80}, {"fail_at", 0}, {"fail_for", 1}, {"assert_at", 0}, {"log", 0},
};

constexpr const char* kCounterNames[kCounters] = {
    "launches", "allocations", "frees", "host_allocations", "copies_to_device", "copies_to_host", "copies_on_device",
    "bytes_to_device", "bytes_to_host", "pageable_copies", "synchronizations", "stream_synchronizations", "events",
};

std::array<std::atomic<long long>, kSettings>& settings() {
  static auto* values = [] {
    auto* read = new std::array<std::atomic<long long>, kSettings>;
    for (int which = 0; which < kSettings; ++which) {
      std::string variable = "STANDIN_";
      for (const char* c = kDefaults[which].name; *c; ++c) variable += static_cast<char>(std::toupper(*c));
      const char* given = std::getenv(variable.c_str());
      (*read)[which] = given ? std::atoll(given) : kDefaults[which].value;
    }
    return read;
  }();
  return *values;
}

struct Block {
  std::size_t bytes;
  int device;
};

// Never destroyed: torch frees memory while the process exits.
struct State {
  std::mutex mutex;
  std::map<const char*, Block> device;
  std::map<const char*, std::size_t> pinned;
  std::size_t used[kMostDevices] = {};
  std::size_t peak[kMostDevices] = {};
};

State& state() {
  static auto* shared = new State;
  return *shared;
}

std::size_t round_up(std::size_t bytes) { return (bytes + kGranularity - 1) / kGranularity * kGranularity; }

template <typename Value>
auto find(std::map<const char*, Value>& blocks, const void* pointer) {
  auto next = blocks.upper_bound(static_cast<const char*>(pointer));
  return next == blocks.begin() ? blocks.end() : std::prev(next);
}

bool must_fail(long long number) {
  const long long first = setting(kFailAt);
  return first > 0 && number >= first && number < first + setting(kFailFor);
}

}  // namespace

long long setting(Setting which) { return settings()[which]; }

int visible_devices() {
  int count = 0;
  while (physical_device(count) >= 0) ++count;
  return count;
}

int physical_device(int device) {
  // CUDA_VISIBLE_DEVICES counts up to the first entry that names no card.
  const int present = static_cast<int>(setting(kDevices));
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (!visible) return device < present ? device : -1;
  for (int count = 0; *visible; ++count) {
    char* end;
    const long index = std::strtol(visible, &end, 10);
    if (end == visible || index < 0 || index >= present) break;
    if (count == device) return static_cast<int>(index);
    visible = *end == ',' ? end + 1 : end + std::strlen(end);
  }
  return -1;
}

void* Memory::reserve(std::size_t bytes) {
  // Ascending addresses that are never used again: of equal free blocks torch takes the one at the lowest address.
  static std::atomic<std::size_t> next{std::size_t{1} << 44};
  const std::size_t whole = round_up(bytes);
  auto* wanted = reinterpret_cast<char*>(next.fetch_add(whole));
  void* mapped = mmap(wanted, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  std::lock_guard guard(state().mutex);
  state().device[wanted] = {whole, current_device};
  return wanted;
}

void Memory::release(void* pointer, std::size_t bytes) {
  std::lock_guard guard(state().mutex);
  state().device.erase(static_cast<char*>(pointer));
  munmap(pointer, round_up(bytes));
}

bool Memory::take(std::size_t bytes, int device) {
  const long long number = ++counters[kAllocations];
  const std::size_t others = setting(kContext) + setting(kOther), total = setting(kMemory);
  std::lock_guard guard(state().mutex);
  if (must_fail(number) || state().used[device] + bytes + others > total) return false;
  state().used[device] += bytes;
  if (state().used[device] > state().peak[device]) state().peak[device] = state().used[device];
  return true;
}

void Memory::give_back(std::size_t bytes, int device) {
  ++counters[kFrees];
  std::lock_guard guard(state().mutex);
  state().used[device] -= bytes;
}

bool Memory::allocate(void** pointer, std::size_t bytes, int device) {
  *pointer = nullptr;
  if (!bytes) return true;  // as cudaMalloc does
  if (!take(round_up(bytes), device)) return false;
  *pointer = reserve(bytes);
  return *pointer != nullptr;
}

bool Memory::free(void* pointer) {
  if (!pointer) return true;
  Block block;
  {
    std::lock_guard guard(state().mutex);
    auto found = state().device.find(static_cast<char*>(pointer));
    if (found == state().device.end()) return false;
    block = found->second;
  }
  release(pointer, block.bytes);
  give_back(block.bytes, block.device);
  return true;
}

std::size_t Memory::free_bytes(int device) {
  const std::size_t total = setting(kMemory), others = setting(kContext) + setting(kOther);
  std::lock_guard guard(state().mutex);
  const std::size_t taken = state().used[device] + others;
  return taken > total ? 0 : total - taken;
}

int Memory::device_of(const void* pointer) {
  std::lock_guard guard(state().mutex);
  auto found = find(state().device, pointer);
  if (found == state().device.end()) return -1;
  return static_cast<const char*>(pointer) < found->first + found->second.bytes ? found->second.device : -1;
}

void Memory::pin(void* pointer, std::size_t bytes) {
  std::lock_guard guard(state().mutex);
  state().pinned[static_cast<char*>(pointer)] = bytes;
}

void Memory::unpin(void* pointer) {
  std::lock_guard guard(state().mutex);
  state().pinned.erase(static_cast<char*>(pointer));
}

bool Memory::pinned(const void* pointer) {
  std::lock_guard guard(state().mutex);
  auto found = find(state().pinned, pointer);
  return found != state().pinned.end() && static_cast<const char*>(pointer) < found->first + found->second;
}

}  // namespace standin

// For tests, through ctypes.
extern "C" {

// A counter, or the bytes that this process holds on a card and held at most: "used_bytes", "peak_bytes" of card 0.
// -1: there is no such counter.
long long standin_get(const char* name) {
  using namespace standin;
  for (int which = 0; which < kCounters; ++which)
    if (!std::strcmp(name, kCounterNames[which])) return counters[which];
  std::lock_guard guard(state().mutex);
  if (!std::strcmp(name, "used_bytes")) return static_cast<long long>(state().used[0]);
  if (!std::strcmp(name, "peak_bytes")) return static_cast<long long>(state().peak[0]);
  return -1;
}

// Counters, and with them the number of the allocation that fails, begin again; peaks begin at what is held.
void standin_reset() {
  using namespace standin;
  for (auto& counter : counters) counter = 0;
  std::lock_guard guard(state().mutex);
  std::memcpy(state().peak, state().used, sizeof state().peak);
}

// 0: done; -1: there is no such setting.
int standin_set(const char* name, long long value) {
  using namespace standin;
  for (int which = 0; which < kSettings; ++which) {
    if (std::strcmp(name, kDefaults[which].name)) continue;
    settings()[which] = value;
    return 0;
  }
  return -1;
}
}
