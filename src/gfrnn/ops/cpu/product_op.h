// The operator for one product of rounded factors: the checks and allocation around product.h.
#pragma once
#include "arguments.h"
#include "machine.h"

namespace {

// A matrix, or the one it is the transpose of, as it lies in memory.
struct Matrix {
  Tensor tensor;
  bool columns;  // it lies column by column

  Matrix(const Tensor& t, const char* name) : tensor(t) {
    STD_TORCH_CHECK(t.dim() == 2, "gfrnn: ", name, " must have 2 dimensions, got ", t.dim());
    expect(t, name, ScalarType::Float, {t.size(0), t.size(1)});
    columns = !t.is_contiguous() && t.stride(0) == 1 && t.stride(1) == t.size(0);
    if (!columns) tensor = torch::stable::contiguous(t);
  }
};

// a b + bias, factors rounded to bfloat16.
Tensor rounded_product(Tensor a_, Tensor b_, Optional bias_) {
  const Matrix a(a_, "a"), b(b_, "b");
  const int64_t M = a_.size(0), K = a_.size(1), N = b_.size(1);
  expect(b_, "b", ScalarType::Float, {K, N});
  STD_TORCH_CHECK(K > 0, "gfrnn: a must have columns");
  Optional bias;
  if (bias_) {
    expect(*bias_, "bias", ScalarType::Float, {N});
    bias = torch::stable::contiguous(*bias_);
  }
  Tensor c = fresh(a_, {M, N});
  if (M > 0 && N > 0)
    kernels().rounded.product({read<float>(a.tensor), read<float>(b.tensor), bias ? read<float>(*bias) : nullptr, write<float>(c),
                               M, N, K, a.columns, b.columns},
                              parallel());
  return c;
}

}  // namespace
