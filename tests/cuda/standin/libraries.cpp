// The functions of the other libraries that must return something. STANDIN_<LIBRARY> selects one library's part.
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

// Handles are addresses that nothing reads.
template <typename Handle>
int give(Handle* handle) {
  static char object;
  *handle = reinterpret_cast<Handle>(&object);
  return 0;
}

}  // namespace

extern "C" {

#ifdef STANDIN_CUBLAS
int cublasCreate_v2(void** handle) { return give(handle); }
int cublasGetVersion_v2(void*, int* version) { return *version = 130101, 0; }
int cublasGetPointerMode_v2(void*, int* mode) { return *mode = 0; }
int cublasGetMathMode(void*, int* mode) { return *mode = 0; }
const char* cublasGetStatusString(int) { return "CUBLAS_STATUS_OF_THE_STAND_IN"; }
#endif

#ifdef STANDIN_CUBLASLT
int cublasLtCreate(void** handle) { return give(handle); }
size_t cublasLtGetVersion() { return 130101; }
// One algorithm that needs no workspace: cublasLtMatmulHeuristicResult_t has 96 bytes.
int cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void*, int, void* results, int* count) {
  std::memset(results, 0, 96);
  *count = 1;
  return 0;
}
#endif

#ifdef STANDIN_CUSOLVER
int cusolverDnCreate(void** handle) { return give(handle); }
#endif

#ifdef STANDIN_CUSPARSE
int cusparseCreate(void** handle) { return give(handle); }
#endif

#ifdef STANDIN_CUDNN
int cudnnCreate(void** handle) { return give(handle); }
size_t cudnnGetVersion() { return 92400; }
size_t cudnnGetCudartVersion() { return 13000; }
int cudnnGetProperty(int which, int* value) { return *value = which == 0 ? 9 : which == 1 ? 24 : 0, 0; }
const char* cudnnGetErrorString(int) { return "CUDNN_STATUS_OF_THE_STAND_IN"; }
void cudnnGetLastErrorString(char* text, size_t size) {
  if (size) *text = 0;
}
#endif

#ifdef STANDIN_CUDNN
// Every request has one answer: one engine, and a workspace of 0 bytes.
int cudnnBackendCreateDescriptor(int, void** descriptor) { return give(descriptor); }
int cudnnBackendGetAttribute(void*, int, int type, long long, long long* count, void* values) {
  constexpr int kInt64 = 3;  // cudnnBackendAttributeType_t
  if (count) *count = 1;
  if (values && type == kInt64) *static_cast<long long*>(values) = 0;
  return 0;
}
int cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(void*, int, int, void*, void*, void*, void*, void*,
                                                             size_t* bytes) {
  return *bytes = 0;
}
int cudnnGetBatchNormalizationBackwardExWorkspaceSize(void*, int, int, void*, void*, void*, void*, void*, void*, void*,
                                                      size_t* bytes) {
  return *bytes = 0;
}
int cudnnGetBatchNormalizationTrainingExReserveSpaceSize(void*, int, int, void*, void*, size_t* bytes) {
  return *bytes = 0;
}
int cudnnDropoutGetStatesSize(void*, size_t* bytes) { return *bytes = 0; }
#endif

#ifdef STANDIN_NCCL
int ncclGetVersion(int* version) { return *version = 23007, 0; }
#endif

#ifdef STANDIN_NVRTC
int nvrtcVersion(int* major, int* minor) { return *major = 13, *minor = 0; }
int nvrtcCreateProgram(void** program, const char*, const char*, int, const char* const*, const char* const*) {
  return give(program);
}
int nvrtcGetPTXSize(void*, size_t* bytes) { return *bytes = 16, 0; }
int nvrtcGetCUBINSize(void*, size_t* bytes) { return *bytes = 16, 0; }
int nvrtcGetProgramLogSize(void*, size_t* bytes) { return *bytes = 1, 0; }
int nvrtcGetPTX(void*, char* text) { return std::memset(text, 0, 16), 0; }
int nvrtcGetCUBIN(void*, char* code) { return std::memset(code, 0, 16), 0; }
int nvrtcGetLoweredName(void*, const char*, const char** name) { return *name = "kernel", 0; }
const char* nvrtcGetErrorString(int) { return "an error of the stand-in"; }
#endif

#ifdef STANDIN_NVIDIA_ML
// NVML, by which torch counts cards without starting CUDA, and looks for the fabric that expandable segments could use.
constexpr int kNotSupported = 3;
constexpr int kNotFound = 6;
constexpr int kInsufficientSize = 7;
static long given(const char* name, long otherwise) {
  const char* value = std::getenv(name);
  return value ? std::atol(value) : otherwise;
}
static long cards() { return given("STANDIN_DEVICES", 1); }
int nvmlInit() { return 0; }
int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
int nvmlDeviceGetCount_v2(unsigned* count) { return *count = static_cast<unsigned>(cards()), 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = reinterpret_cast<void*>(static_cast<std::size_t>(index) + 1);
  return index < cards() ? 0 : 2;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char*, void** device) { return give(device); }
int nvmlDeviceGetUUID(void* device, char* text, unsigned size) {
  std::snprintf(text, size, "GPU-00000000-0000-0000-0000-%012zx", reinterpret_cast<std::size_t>(device));
  return 0;
}
int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  const char* last = std::strrchr(uuid, '-');
  const std::size_t number = last ? std::strtoull(last + 1, nullptr, 16) : 0;
  *device = reinterpret_cast<void*>(number);
  return number && number <= static_cast<std::size_t>(cards()) ? 0 : kNotFound;
}
int nvmlSystemGetDriverVersion(char* text, unsigned size) {
  std::snprintf(text, size, "580.00 (stand-in)");
  return 0;
}
int nvmlDeviceGetClockInfo(void*, int, unsigned* megahertz) { return *megahertz = 1200, 0; }
int nvmlDeviceGetMaxClockInfo(void*, int, unsigned* megahertz) { return *megahertz = 1410, 0; }
int nvmlDeviceGetUtilizationRates(void*, unsigned* percent) {
  percent[0] = static_cast<unsigned>(given("STANDIN_BUSY", 0));
  percent[1] = 0;
  return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void*, unsigned* count, void* processes) {
  *count = static_cast<unsigned>(given("STANDIN_PROCESSES", 1));
  return *count && !processes ? kInsufficientSize : 0;
}
int nvmlDeviceGetComputeRunningProcesses(void*, unsigned* count, void*) { return *count = 0, 0; }
int nvmlDeviceGetGpuFabricInfoV(void*, void*) { return kNotSupported; }
int nvmlDeviceGetNvLinkRemoteDeviceType(void*, unsigned, int*) { return kNotSupported; }
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void*, unsigned, void*) { return kNotSupported; }
int nvmlSystemGetCudaDriverVersion_v2(int* version) { return *version = 13000, 0; }
#endif

#ifdef STANDIN_CUDA
int cuDeviceGet(int* device, int index) { return *device = index, 0; }
int cuDriverGetVersion(int* version) { return *version = 13000, 0; }
int cuDevicePrimaryCtxGetState(int, unsigned* flags, int* active) { return *flags = 0, *active = 1, 0; }
int cuCtxGetCurrent(void** context) { return give(context); }
int cuModuleLoadData(void** module, const void*) { return give(module); }
int cuModuleGetFunction(void** function, void*, const char*) { return give(function); }
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void*, int, size_t) { return *blocks = 2, 0; }
int cuGetErrorString(int, const char** text) { return *text = "an error of the stand-in", 0; }
#endif
}
