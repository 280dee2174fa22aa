// What the imaginary cards are like and what is counted on them; see README.md.
#pragma once

#include <atomic>
#include <cstddef>
#include <mutex>

namespace standin {

// Each can be given in the environment as STANDIN_<NAME>, and changed at run time with standin_set("<name>", value).
enum Setting {
  kDevices,     // cards
  kMemory,      // bytes of each card
  kContext,     // bytes that a process takes by using a card
  kOther,       // bytes that other programs hold on each card
  kCapability,  // 80 for compute capability 8.0
  kFailAt,      // the number, from 1, of the first allocation that fails; 0: none
  kFailFor,     // how many allocations fail from there on; torch tries a failed one again after freeing its cache
  kAssertAt,    // the number, from 1, of the launch whose kernel fails an assertion on the card; 0: none
  kLog,         // 1: name every kernel on standard error
  kSettings,
};

enum Counter {
  kLaunches,               // kernels; matrix products of cuBLAS and calls of cuDNN are not among them
  kAllocations,            // calls of cudaMalloc and of cuMemCreate, failed ones included
  kFrees,
  kHostAllocations,        // pinned memory
  kCopiesToDevice,
  kCopiesToHost,
  kCopiesOnDevice,
  kBytesToDevice,
  kBytesToHost,
  kPageableCopies,         // copies to or from a card whose host side is not pinned
  kSynchronizations,       // of a whole device
  kStreamSynchronizations, // of a stream or an event
  kEvents,
  kCounters,
};

extern std::atomic<long long> counters[kCounters];

long long setting(Setting which);

// Memory of the imaginary cards. Its pages cannot be touched: code on the host that reads a device pointer crashes,
// as it would with a card. What is copied there is lost, and reading it gives zeros.
struct Memory {
  // False where the card is full, or the hook makes this allocation fail.
  bool allocate(void** pointer, std::size_t bytes, int device);
  // Address space without memory, and memory without an address, for expandable segments.
  void* reserve(std::size_t bytes);
  void release(void* pointer, std::size_t bytes);
  bool take(std::size_t bytes, int device);
  void give_back(std::size_t bytes, int device);
  bool free(void* pointer);
  std::size_t free_bytes(int device);
  int device_of(const void* pointer);  // -1: none

  void pin(void* pointer, std::size_t bytes);
  void unpin(void* pointer);
  bool pinned(const void* pointer);
};

extern Memory memory;
extern thread_local int current_device;
int visible_devices();
int physical_device(int device);  // of one that the process sees; -1: there is none

}  // namespace standin
