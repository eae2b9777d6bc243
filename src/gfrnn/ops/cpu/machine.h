// The machine: which instruction set, and how work is spread over threads.
#pragma once
#include <torch/csrc/stable/ops.h>
#include <torch/headeronly/util/Exception.h>
#ifdef GFRNN_HAS_AMX_BF16
#include <cpuid.h>
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "kernels.h"

#ifdef __GLIBC__
// libstdc++ asks glibc whether a process has one thread only, to save atomics; only glibc 2.32 and newer can answer. Our
// own answer, "there may be more", lets the op run where torch does, from glibc 2.28 on.
extern "C" {
__attribute__((visibility("hidden"))) char __libc_single_threaded = 0;
}
#endif

namespace gfrnn {
void yield_thread() { std::this_thread::yield(); }
}  // namespace gfrnn

namespace {

#ifdef GFRNN_HAS_AMX_BF16
// Whether the CPU multiplies tiles of bfloat16 (AMX), and Linux lets this process: it keeps 8 KB more for every thread
// that does, and wants to be asked.
bool may_use_tiles() {
#ifdef __linux__
  constexpr long ASK = 0x1023, TILE_DATA = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA: not in older headers
  constexpr unsigned BF16 = 1u << 22, TILES = 1u << 24;
  unsigned a, b, c, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & BF16) && (d & TILES) && syscall(SYS_arch_prctl, ASK, TILE_DATA) == 0;
#else
  return false;
#endif
}
#endif

const gfrnn::Kernels& kernels() {
  static const gfrnn::Kernels chosen = [] {
    const char* limit = std::getenv("GFRNN_ISA");  // for tests: no better than this
    constexpr const char* WORST_FIRST[] = {"generic", "avx2", "avx512", "avx512_bf16", "amx_bf16"};
    [[maybe_unused]] auto allowed = [&](const char* isa) {
      bool passed = false;  // the limit, on the way to `isa`
      for (const char* name : WORST_FIRST) {
        if (std::strcmp(name, isa) == 0) return !passed;
        passed = passed || (limit && std::strcmp(name, limit) == 0);
      }
      return false;
    };
#ifdef GFRNN_HAS_AVX512
    auto avx512 = [] {
      return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    };
#endif
#ifdef GFRNN_HAS_AMX_BF16
    if (allowed("amx_bf16") && avx512() && __builtin_cpu_supports("avx512bf16") && may_use_tiles()) {
      gfrnn::Kernels best = gfrnn::kernels_avx512;
      best.rounded = gfrnn::rounded_amx_bf16;
      return best;
    }
#endif
#ifdef GFRNN_HAS_AVX512_BF16
    // Intel's CPUs multiply floats, two registers in a cycle, as fast as pairs of bfloat16, one register in a cycle.
    const bool worth_it = !__builtin_cpu_is("intel") || (limit && std::strcmp(limit, "avx512_bf16") == 0);
    if (allowed("avx512_bf16") && worth_it && avx512() && __builtin_cpu_supports("avx512bf16")) {
      gfrnn::Kernels best = gfrnn::kernels_avx512;
      best.rounded = gfrnn::rounded_avx512_bf16;
      return best;
    }
#endif
#ifdef GFRNN_HAS_AVX512
    if (allowed("avx512") && avx512()) return gfrnn::kernels_avx512;
#endif
#ifdef GFRNN_HAS_AVX2
    if (allowed("avx2") && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        __builtin_cpu_supports("f16c"))
      return gfrnn::kernels_avx2;
#endif
    return gfrnn::kernels_generic;
  }();
  return chosen;
}

// What went wrong in threads, told once and in the thread that asked: an exception that leaves a thread ends the process.
class Failure {
 public:
  template <class Work>
  void watch(const Work& work) noexcept {
    try {
      work();
    } catch (const std::exception& error) {
      tell(error.what());
    } catch (...) {
      tell("unknown error");
    }
  }
  void raise() const { STD_TORCH_CHECK(!failed_, "gfrnn: a worker thread failed: ", text_); }

 private:
  void tell(const char* text) noexcept {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!failed_) std::strncpy(text_, text, sizeof(text_) - 1);  // no memory may be left for a string
    failed_ = true;
  }
  std::mutex mutex_;
  bool failed_ = false;
  char text_[200] = {};
};

gfrnn::Parallel parallel() {
  return {torch::stable::get_num_threads(), [](int64_t n, void (*body)(void*, int64_t), void* context) {
            Failure failure;
            torch::stable::parallel_for(0, n, 1, [&](int64_t begin, int64_t end) {
              failure.watch([&] {
                for (int64_t i = begin; i < end; i++) body(context, i);
              });
            });
            failure.raise();
          }};
}

// Threads that run at the same time, whatever torch's pool is doing: they wait for each other, so all begin or none.
gfrnn::Team team() {
  return {1, [](int64_t n, void (*body)(void*, int64_t), void* context) {
            enum { WAIT, GO, LEAVE };
            std::atomic<int> word = WAIT;
            auto say = [&](int new_word) {
              word = new_word;
              word.notify_all();
            };
            std::vector<std::thread> others;
            Failure failure;
            failure.watch([&] {
              others.reserve(n);
              for (int64_t i = 1; i < n; i++)
                others.emplace_back([&word, body, context, i] {
                  word.wait(WAIT);
                  if (word == GO) body(context, i);
                });
              say(GO);
              body(context, 0);
            });
            if (word == WAIT) say(LEAVE);
            for (auto& other : others) other.join();
            failure.raise();
          }};
}

}  // namespace
