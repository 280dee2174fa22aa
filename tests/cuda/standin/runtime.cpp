// libcudart: cards, memory, copies, launches, streams and events. Functions that are not here do nothing and succeed.
#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <ctime>
#include <unordered_map>
#include <vector>

#include "settings.h"

#undef cudaGetDeviceProperties

using namespace standin;

namespace {

bool is_card(int device) { return device >= 0 && device < visible_devices(); }

// Errors are remembered until cudaGetLastError, as in the real runtime: torch looks there after a failed allocation.
thread_local cudaError_t last_error = cudaSuccess;

// After an assertion on the card nothing works in this process any more. Launches do not notice, unless they block.
std::atomic<bool> asserted{false};

cudaError_t result(cudaError_t error) {
  if (asserted) error = cudaErrorAssert;
  if (error != cudaSuccess) last_error = error;
  return error;
}

}  // namespace

extern "C" {

// ---- errors

cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError() { return last_error; }

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorNoDevice: return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorAssert: return "device-side assert triggered";
    default: return "an error that the stand-in does not name";
  }
}

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorNoDevice: return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorAssert: return "cudaErrorAssert";
    default: return "cudaErrorUnknown";
  }
}

// ---- cards

cudaError_t cudaGetDeviceCount(int* count) {
  *count = visible_devices();
  return result(*count ? cudaSuccess : cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int device) {
  if (!is_card(device)) return result(cudaErrorInvalidDevice);
  current_device = device;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }

// The shape of a large card, with the memory and compute capability that the settings give.
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* card, int device) {
  if (!is_card(device)) return result(cudaErrorInvalidDevice);
  std::memset(card, 0, sizeof *card);
  std::strcpy(card->name, "Stand-in without a GPU");
  card->uuid.bytes[15] = static_cast<char>(physical_device(device) + 1);
  card->totalGlobalMem = setting(kMemory);
  card->major = static_cast<int>(setting(kCapability) / 10);
  card->minor = static_cast<int>(setting(kCapability) % 10);
  card->multiProcessorCount = 132;
  card->warpSize = 32;
  card->maxThreadsPerBlock = 1024;
  for (int axis = 0; axis < 3; ++axis) {
    card->maxThreadsDim[axis] = axis == 2 ? 64 : 1024;
    card->maxGridSize[axis] = axis == 0 ? 2147483647 : 65535;
  }
  card->maxThreadsPerMultiProcessor = 2048;
  card->maxBlocksPerMultiProcessor = 32;
  card->regsPerBlock = card->regsPerMultiprocessor = 65536;
  card->sharedMemPerBlock = 49152;
  card->sharedMemPerBlockOptin = 232448;
  card->sharedMemPerMultiprocessor = 233472;
  card->totalConstMem = 65536;
  card->l2CacheSize = 52428800;
  card->memoryBusWidth = 5120;
  card->textureAlignment = 512;
  card->unifiedAddressing = 1;
  card->concurrentKernels = 1;
  card->asyncEngineCount = 3;
  card->pciBusID = physical_device(device) + 1;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp card;
  if (cudaGetDeviceProperties(&card, device) != cudaSuccess) return cudaErrorInvalidDevice;
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: *value = card.maxThreadsPerBlock; break;
    case cudaDevAttrMaxGridDimX: *value = card.maxGridSize[0]; break;
    case cudaDevAttrMaxGridDimY: *value = card.maxGridSize[1]; break;
    case cudaDevAttrMaxGridDimZ: *value = card.maxGridSize[2]; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = static_cast<int>(card.sharedMemPerBlock); break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = static_cast<int>(card.sharedMemPerBlockOptin); break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = static_cast<int>(card.sharedMemPerMultiprocessor);
      break;
    case cudaDevAttrWarpSize: *value = card.warpSize; break;
    case cudaDevAttrMaxRegistersPerBlock: *value = card.regsPerBlock; break;
    case cudaDevAttrMultiProcessorCount: *value = card.multiProcessorCount; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = card.maxThreadsPerMultiProcessor; break;
    case cudaDevAttrMaxBlocksPerMultiprocessor: *value = card.maxBlocksPerMultiProcessor; break;
    case cudaDevAttrL2CacheSize: *value = card.l2CacheSize; break;
    case cudaDevAttrUnifiedAddressing: *value = 1; break;
    case cudaDevAttrComputeCapabilityMajor: *value = card.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = card.minor; break;
    default: *value = 0;
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* name, int size, int device) {
  std::snprintf(name, size, "0000:%02x:00.0", device + 1);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  ++counters[kSynchronizations];
  return result(cudaSuccess);
}

// ---- memory

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  return result(memory.allocate(pointer, bytes, current_device) ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaFree(void* pointer) { return result(memory.free(pointer) ? cudaSuccess : cudaErrorInvalidValue); }

cudaError_t cudaMallocAsync(void** pointer, size_t bytes, cudaStream_t) { return cudaMalloc(pointer, bytes); }

cudaError_t cudaFreeAsync(void* pointer, cudaStream_t) { return cudaFree(pointer); }

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *total = setting(kMemory);
  *free = memory.free_bytes(current_device);
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned) {
  ++counters[kHostAllocations];
  if (posix_memalign(pointer, 4096, bytes ? bytes : 1)) return result(cudaErrorMemoryAllocation);
  memory.pin(*pointer, bytes);
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* pointer) {
  memory.unpin(pointer);
  std::free(pointer);
  return cudaSuccess;
}

cudaError_t cudaHostRegister(void* pointer, size_t bytes, unsigned) {
  memory.pin(pointer, bytes);
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* pointer) {
  memory.unpin(pointer);
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  std::memset(attributes, 0, sizeof *attributes);
  const int device = memory.device_of(pointer);
  auto* address = const_cast<void*>(pointer);
  if (device >= 0) {
    attributes->type = cudaMemoryTypeDevice;
    attributes->device = device;
    attributes->devicePointer = address;
  } else if (memory.pinned(pointer)) {
    attributes->type = cudaMemoryTypeHost;
    attributes->devicePointer = attributes->hostPointer = address;
  } else {
    attributes->type = cudaMemoryTypeUnregistered;
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int) {
  static int object;
  *pool = reinterpret_cast<cudaMemPool_t>(&object);
  return cudaSuccess;
}

// ---- copies

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  const bool to_device = memory.device_of(to) >= 0, from_device = memory.device_of(from) >= 0;
  if (to_device && from_device) {
    ++counters[kCopiesOnDevice];
  } else if (to_device) {
    ++counters[kCopiesToDevice];
    counters[kBytesToDevice] += static_cast<long long>(bytes);
    if (!memory.pinned(from)) ++counters[kPageableCopies];
  } else if (from_device) {
    ++counters[kCopiesToHost];
    counters[kBytesToHost] += static_cast<long long>(bytes);
    if (!memory.pinned(to)) ++counters[kPageableCopies];
    std::memset(to, 0, bytes);
  } else {
    std::memcpy(to, from, bytes);
  }
  return result(cudaSuccess);
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t) {
  return cudaMemcpy(to, from, bytes, kind);
}

cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes, cudaStream_t) {
  return cudaMemcpy(to, from, bytes, cudaMemcpyDefault);
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t) {
  for (size_t row = 0; row < height; ++row)
    cudaMemcpy(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch, width,
               kind);
  return cudaSuccess;
}

cudaError_t cudaGetSymbolAddress(void** pointer, const void*) {
  static char object[1 << 16];
  *pointer = object;
  return cudaSuccess;
}

// ---- launches

namespace {

std::unordered_map<const void*, std::string>& kernel_names() {
  static auto* names = new std::unordered_map<const void*, std::string>;
  return *names;
}

cudaError_t launched(const void* kernel) {
  const long long number = ++counters[kLaunches];
  if (number == setting(kAssertAt)) asserted = true;
  const char* blocking = std::getenv("CUDA_LAUNCH_BLOCKING");
  if (asserted && blocking && *blocking == '1') return result(cudaErrorAssert);
  if (setting(kLog)) {
    auto found = kernel_names().find(kernel);
    std::fprintf(stderr, "kernel %s\n", found == kernel_names().end() ? "?" : found->second.c_str());
  }
  return cudaSuccess;
}

struct Configuration {
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
};

thread_local std::vector<Configuration>* configurations;

}  // namespace

void** __cudaRegisterFatBinary(void*) {
  static void* object;
  return &object;
}

char __cudaInitModule(void**) { return 1; }

void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, void*, void*, void*, void*, int*) {
  if (setting(kLog)) kernel_names()[host] = name;
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
  if (!configurations) configurations = new std::vector<Configuration>;
  configurations->push_back({grid, block, shared, stream});
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  if (!configurations || configurations->empty()) return cudaErrorUnknown;
  const Configuration top = configurations->back();
  configurations->pop_back();
  *grid = top.grid;
  *block = top.block;
  *shared = top.shared;
  *static_cast<cudaStream_t*>(stream) = top.stream;
  return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(host));
  return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3, dim3, void**, size_t, cudaStream_t) {
  return launched(kernel);
}

cudaError_t cudaLaunchKernel(const void* kernel, dim3, dim3, void**, size_t, cudaStream_t) { return launched(kernel); }

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t*, const void* kernel, void**) { return launched(kernel); }

cudaError_t cudaLaunchCooperativeKernel(const void* kernel, dim3, dim3, void**, size_t, cudaStream_t) {
  return launched(kernel);
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  std::memset(attributes, 0, sizeof *attributes);
  attributes->maxThreadsPerBlock = 1024;
  attributes->numRegs = 32;
  attributes->ptxVersion = attributes->binaryVersion = static_cast<int>(setting(kCapability));
  attributes->maxDynamicSharedSizeBytes = 232448;
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int, size_t) {
  *blocks = 2;
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int, size_t, unsigned) {
  *blocks = 2;
  return cudaSuccess;
}

// ---- streams and events: work is done when it is asked for, so nothing waits

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  *stream = reinterpret_cast<cudaStream_t>(new char);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithFlags(stream, 0); }

cudaError_t cudaStreamSynchronize(cudaStream_t) {
  ++counters[kStreamSynchronizations];
  return result(cudaSuccess);
}

cudaError_t cudaStreamGetPriority(cudaStream_t, int* priority) {
  *priority = 0;
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t, cudaStreamCaptureStatus* status, unsigned long long*, cudaGraph_t*,
                                     const cudaGraphNode_t**, const cudaGraphEdgeData**, size_t*) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = reinterpret_cast<cudaEvent_t>(new timespec{});
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete reinterpret_cast<timespec*>(event);
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  ++counters[kEvents];
  clock_gettime(CLOCK_MONOTONIC, reinterpret_cast<timespec*>(event));
  return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
  return cudaEventRecord(event, stream);
}

cudaError_t cudaEventSynchronize(cudaEvent_t) {
  ++counters[kStreamSynchronizations];
  return result(cudaSuccess);
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  const auto *first = reinterpret_cast<timespec*>(begin), *last = reinterpret_cast<timespec*>(end);
  *milliseconds = static_cast<float>((last->tv_sec - first->tv_sec) * 1e3 + (last->tv_nsec - first->tv_nsec) / 1e6);
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t function, void* argument) {
  function(argument);
  return cudaSuccess;
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t function, void* argument, unsigned) {
  function(stream, cudaSuccess, argument);
  return cudaSuccess;
}

// ---- the driver's functions that torch's allocator looks up by name: those that expandable segments need

namespace {

int granularity(size_t* bytes, const void*, int) {
  *bytes = size_t{2} << 20;
  return 0;
}

int reserve_address(unsigned long long* address, size_t bytes, size_t, unsigned long long, unsigned long long) {
  *address = reinterpret_cast<unsigned long long>(memory.reserve(bytes));
  return *address ? 0 : static_cast<int>(cudaErrorMemoryAllocation);
}

int free_address(unsigned long long address, size_t bytes) {
  memory.release(reinterpret_cast<void*>(address), bytes);
  return 0;
}

struct Physical {
  size_t bytes;
  int device;
};

int create(unsigned long long* handle, size_t bytes, const void*, unsigned long long) {
  if (!memory.take(bytes, current_device)) return static_cast<int>(cudaErrorMemoryAllocation);
  *handle = reinterpret_cast<unsigned long long>(new Physical{bytes, current_device});
  return 0;
}

int release(unsigned long long handle) {
  auto* block = reinterpret_cast<Physical*>(handle);
  memory.give_back(block->bytes, block->device);
  delete block;
  return 0;
}

int nothing() { return 0; }

void* driver_function(const std::string& name) {
  if (name == "cuMemGetAllocationGranularity") return reinterpret_cast<void*>(granularity);
  if (name == "cuMemAddressReserve") return reinterpret_cast<void*>(reserve_address);
  if (name == "cuMemAddressFree") return reinterpret_cast<void*>(free_address);
  if (name == "cuMemCreate") return reinterpret_cast<void*>(create);
  if (name == "cuMemRelease") return reinterpret_cast<void*>(release);
  return reinterpret_cast<void*>(nothing);
}

}  // namespace

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  if (setting(kLog)) std::fprintf(stderr, "driver function %s\n", name);
  *function = driver_function(name);
  if (found) *found = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
}
