// The host's calls of HIP and, by other names, of CUDA. Device memory is memory of the process, with red zones around it.
#pragma once
#include <emulation/words.h>

enum hipError_t { hipSuccess = 0, hipErrorInvalidValue = 1, hipErrorOutOfMemory = 2, hipErrorNotReady = 600 };
enum hipMemcpyKind { hipMemcpyHostToHost, hipMemcpyHostToDevice, hipMemcpyDeviceToHost, hipMemcpyDeviceToDevice, hipMemcpyDefault };
enum hipFuncAttribute { hipFuncAttributeMaxDynamicSharedMemorySize = 8, hipFuncAttributePreferredSharedMemoryCarveout = 9 };
enum hipDeviceAttribute_t { hipDeviceAttributeMultiprocessorCount, hipDeviceAttributeWarpSize };
typedef struct emu_stream* hipStream_t;
typedef struct emu_event* hipEvent_t;
struct hipDeviceProp_t {
  char name[64], gcnArchName[64];
  int multiProcessorCount, warpSize, maxThreadsPerBlock;
  size_t sharedMemPerBlock, totalGlobalMem;
};

EMU_INLINE const char* hipGetErrorString(hipError_t error) { return error == hipSuccess ? "no error" : "error"; }
EMU_INLINE hipError_t hipGetLastError() { return hipError_t(emu::emu_last_error(1)); }
EMU_INLINE hipError_t hipPeekAtLastError() { return hipError_t(emu::emu_last_error(0)); }
EMU_INLINE hipError_t hipDeviceSynchronize() { return hipSuccess; }
EMU_INLINE hipError_t hipStreamSynchronize(hipStream_t) { return hipSuccess; }
EMU_INLINE hipError_t hipGetDevice(int* device) { return *device = 0, hipSuccess; }
EMU_INLINE hipError_t hipSetDevice(int) { return hipSuccess; }
template <class T>
EMU_INLINE hipError_t hipMalloc(T** at, size_t size) {
  *at = static_cast<T*>(emu::emu_allocate(size));
  return *at == nullptr ? hipErrorOutOfMemory : hipSuccess;
}
template <class T>
EMU_INLINE hipError_t hipMallocAsync(T** at, size_t size, hipStream_t) { return hipMalloc(at, size); }
EMU_INLINE hipError_t hipFree(void* at) { return hipError_t(emu::emu_free(at)); }
EMU_INLINE hipError_t hipFreeAsync(void* at, hipStream_t) { return hipFree(at); }
EMU_INLINE hipError_t hipMemset(void* at, int value, size_t size) { return std::memset(at, value, size), hipSuccess; }
EMU_INLINE hipError_t hipMemsetAsync(void* at, int value, size_t size, hipStream_t = nullptr) { return hipMemset(at, value, size); }
EMU_INLINE hipError_t hipMemcpy(void* to, const void* from, size_t size, hipMemcpyKind) { return std::memcpy(to, from, size), hipSuccess; }
EMU_INLINE hipError_t hipMemcpyAsync(void* to, const void* from, size_t size, hipMemcpyKind kind, hipStream_t = nullptr) {
  return hipMemcpy(to, from, size, kind);
}
template <class F>
EMU_INLINE hipError_t hipFuncSetAttribute(F, hipFuncAttribute, int) { return hipSuccess; }
EMU_INLINE hipError_t hipGetDeviceProperties(hipDeviceProp_t* found, int) {
  *found = {"emulated", EMU_ARCH, EMU_UNITS, int(emu::WAVE), 1024, EMU_LDS_BYTES, size_t(64) << 30};
  return hipSuccess;
}
EMU_INLINE hipError_t hipDeviceGetAttribute(int* value, hipDeviceAttribute_t which, int) {
  *value = which == hipDeviceAttributeWarpSize ? int(emu::WAVE) : EMU_UNITS;
  return hipSuccess;
}
template <class T>
EMU_INLINE hipError_t hipMemcpyToSymbol(T& symbol, const void* from, size_t size, size_t offset = 0, hipMemcpyKind = hipMemcpyHostToDevice) {
  return std::memcpy(reinterpret_cast<char*>(&symbol) + offset, from, size), hipSuccess;
}

#define cudaError_t hipError_t
#define cudaSuccess hipSuccess
#define cudaStream_t hipStream_t
#define cudaGetErrorString hipGetErrorString
#define cudaGetLastError hipGetLastError
#define cudaPeekAtLastError hipPeekAtLastError
#define cudaDeviceSynchronize hipDeviceSynchronize
#define cudaStreamSynchronize hipStreamSynchronize
#define cudaGetDevice hipGetDevice
#define cudaSetDevice hipSetDevice
#define cudaMalloc hipMalloc
#define cudaMallocAsync hipMallocAsync
#define cudaFree hipFree
#define cudaFreeAsync hipFreeAsync
#define cudaMemset hipMemset
#define cudaMemsetAsync hipMemsetAsync
#define cudaMemcpy hipMemcpy
#define cudaMemcpyAsync hipMemcpyAsync
#define cudaMemcpyKind hipMemcpyKind
#define cudaMemcpyHostToDevice hipMemcpyHostToDevice
#define cudaMemcpyDeviceToHost hipMemcpyDeviceToHost
#define cudaMemcpyDeviceToDevice hipMemcpyDeviceToDevice
#define cudaMemcpyToSymbol hipMemcpyToSymbol
#define cudaFuncSetAttribute hipFuncSetAttribute
#define cudaFuncAttributeMaxDynamicSharedMemorySize hipFuncAttributeMaxDynamicSharedMemorySize
#define cudaFuncAttributePreferredSharedMemoryCarveout hipFuncAttributePreferredSharedMemoryCarveout
#define cudaDevAttrMultiProcessorCount hipDeviceAttributeMultiprocessorCount
#define cudaDeviceGetAttribute hipDeviceGetAttribute
