// The operators for the softmax and its cost: the checks and allocation around softmax.h.
#pragma once
#include "arguments.h"
#include "machine.h"

namespace {

// logits (N, V), which become p - onehot(target) if they are to be kept, and targets (N,) -> nats (N,)
Tensor softmax_nats_(Tensor logits, Tensor targets_, bool keep) {
  STD_TORCH_CHECK(logits.dim() == 2, "gfrnn: logits must have 2 dimensions, got ", logits.dim());
  const int64_t N = logits.size(0), V = logits.size(1);
  expect(logits, "logits", ScalarType::Float, {N, V});
  STD_TORCH_CHECK(logits.is_contiguous(), "gfrnn: logits must be contiguous");
  expect(targets_, "targets", ScalarType::Long, {N});
  const Tensor targets = torch::stable::contiguous(targets_);
  const int64_t* wanted = read<int64_t>(targets);
  for (int64_t n = 0; n < N; n++)
    STD_TORCH_CHECK(wanted[n] >= 0 && wanted[n] < V, "gfrnn: target ", wanted[n], " is out of range, there are ", V, " symbols");
  Tensor nats = fresh(logits, {N});
  if (N > 0) kernels().softmax({write<float>(logits), wanted, write<float>(nats), N, V, keep}, parallel());
  return nats;
}

// difference (N, V) as softmax_nats_ leaves it, and d_nats (N,) -> d_logits (N, V), rounded to bfloat16 if asked for, and
// their sums over the rows (V,)
std::tuple<Tensor, Tensor> softmax_backward(Tensor difference_, Tensor d_nats_, bool rounded) {
  STD_TORCH_CHECK(difference_.dim() == 2, "gfrnn: difference must have 2 dimensions, got ", difference_.dim());
  const int64_t N = difference_.size(0), V = difference_.size(1);
  expect(difference_, "difference", ScalarType::Float, {N, V});
  expect(d_nats_, "d_nats", ScalarType::Float, {N});
  const Tensor difference = torch::stable::contiguous(difference_), d_nats = torch::stable::contiguous(d_nats_);
  Tensor d_logits = fresh(difference, {N, V}), d_bias = fresh(difference, {V});
  kernels().softmax_backward({read<float>(difference), read<float>(d_nats), write<float>(d_logits), write<float>(d_bias), N, V, rounded},
                             parallel());
  return {d_logits, d_bias};
}

}  // namespace
