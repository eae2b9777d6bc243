// Tensors of the stable ABI, checked, read, written and made. Only op.cpp and what it includes know torch.
#pragma once
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>
#include <torch/headeronly/util/Exception.h>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <cstring>
#include <optional>
#include <string>
#include <vector>

namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;
using Optional = std::optional<Tensor>;

std::string sizes_of(const Tensor& t) {
  std::string text = "(";
  for (int64_t d = 0; d < t.dim(); d++) text += (d ? ", " : "") + std::to_string(t.size(d));
  return text + ")";
}

void expect(const Tensor& t, const char* name, ScalarType type, const std::vector<int64_t>& sizes) {
  bool fits = t.dim() == static_cast<int64_t>(sizes.size());
  std::string wanted = "(";
  for (size_t d = 0; d < sizes.size(); d++) {
    fits = fits && t.size(static_cast<int64_t>(d)) == sizes[d];
    wanted += (d ? ", " : "") + std::to_string(sizes[d]);
  }
  STD_TORCH_CHECK(fits, "gfrnn: ", name, " must have shape ", wanted, "), got ", sizes_of(t));
  STD_TORCH_CHECK(t.scalar_type() == type, "gfrnn: ", name, " has the wrong dtype");
  STD_TORCH_CHECK(t.is_cpu(), "gfrnn: ", name, " must be on the CPU");
  STD_TORCH_CHECK(t.numel() == 0 || t.const_data_ptr(), "gfrnn: ", name, " has no memory, its storage was freed");
}

template <class F>
constexpr ScalarType type_of() {
  return sizeof(F) == 4 ? ScalarType::Float : ScalarType::Double;
}

template <class F>
const F* read(const Tensor& t) {
  return static_cast<const F*>(t.const_data_ptr());
}

template <class F>
F* write(const Tensor& t) {
  return static_cast<F*>(t.mutable_data_ptr());
}

Tensor fresh(const Tensor& like, const std::vector<int64_t>& sizes, bool zero = false) {
  return zero ? torch::stable::new_zeros(like, sizes) : torch::stable::new_empty(like, sizes);
}

// Memory for every timestep. It is new at every call, and the kernel hands it out page by page at the first touch:
// in pages of 2 MB instead of 4 KB, where Linux allows it, that costs a third.
Tensor fresh_large(const Tensor& like, const std::vector<int64_t>& sizes) {
  Tensor t = fresh(like, sizes);
#ifdef MADV_HUGEPAGE
  constexpr uintptr_t PAGE = uintptr_t(1) << 21;
  const uintptr_t begin = reinterpret_cast<uintptr_t>(t.const_data_ptr());
  const uintptr_t first = (begin + PAGE - 1) / PAGE * PAGE, last = (begin + t.numel() * t.element_size()) / PAGE * PAGE;
  if (last > first) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);  // a hint: may be refused
#endif
  return t;
}

// (L, B, H) -> (B, L*H), or back
template <class F>
void exchange(const F* from, F* to, int64_t outer, int64_t inner, int64_t H) {
  for (int64_t i = 0; i < outer; i++)
    for (int64_t k = 0; k < inner; k++) std::memcpy(to + (k * outer + i) * H, from + (i * inner + k) * H, H * sizeof(F));
}

}  // namespace
