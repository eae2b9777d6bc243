// The operators that write text for a batch of one: the checks and allocation around generate.h.
#pragma once
#include <algorithm>

#include "arguments.h"
#include "machine.h"

namespace {

// Text for a batch of one. Weights are packed once into an opaque tensor of bytes, then characters are drawn in pieces.
struct Writer {
  Arguments<float> arguments;
  Tensor head;
  Optional head_bias;
  gfrnn::Generate g = {};

  Writer(const Tensor& h, const Optional& c, const std::vector<Tensor>& weights, const Tensor& head_,
         const Optional& bias, int64_t unit, int64_t wiring, bool own, bool input_skip, bool half)
      : arguments(torch::stable::new_zeros(h, {1, 1}, ScalarType::Long), h, c, weights, std::nullopt, std::nullopt, unit,
                  wiring, head_.size(0), own, input_skip, false),
        head(torch::stable::contiguous(head_)) {
    const Shape& s = arguments.shape;
    STD_TORCH_CHECK(s.B == 1, "gfrnn: generation is for a batch of one, got ", s.B);
    g.V = s.I;
    g.head_width = head_.dim() == 2 ? head_.size(1) : 0;
    STD_TORCH_CHECK(g.head_width == s.L * s.H || g.head_width == s.H, "gfrnn: head must have ", s.L * s.H, " or ", s.H,
                    " columns, got ", g.head_width);
    expect(head_, "head", ScalarType::Float, {g.V, g.head_width});
    if (bias) {
      expect(*bias, "head_bias", ScalarType::Float, {g.V});
      head_bias = torch::stable::contiguous(*bias);
    }
    g.shape = s;
    g.layers = arguments.layers.data();
    g.head = read<float>(head);
    g.head_bias = head_bias ? read<float>(*head_bias) : nullptr;
    g.half = half;
  }
};

Tensor generate_pack(Tensor h, Optional c, std::vector<Tensor> weights, Tensor head, Optional head_bias, int64_t unit,
                     int64_t wiring, bool own, bool input_skip, bool half) {
  Writer w(h, c, weights, head, head_bias, unit, wiring, own, input_skip, half);
  Tensor packed = torch::stable::new_empty(h, {kernels().generate_packed_bytes(w.g)}, ScalarType::Byte);
  w.g.packed = static_cast<char*>(packed.mutable_data_ptr());
  kernels().generate_pack(w.g);
  return packed;
}

std::tuple<Tensor, Tensor, Tensor, Tensor> generate(Tensor packed, Tensor logits, Tensor h, Optional c,
                                                    std::vector<Tensor> weights, Tensor head, Optional head_bias,
                                                    Tensor uniform, double temperature, int64_t top_k, double top_p,
                                                    int64_t unit, int64_t wiring, bool own, bool input_skip, bool half) {
  Writer w(h, c, weights, head, head_bias, unit, wiring, own, input_skip, half);
  const Shape& s = w.g.shape;
  expect(packed, "packed", ScalarType::Byte, {kernels().generate_packed_bytes(w.g)});
  expect(logits, "logits", ScalarType::Float, {w.g.V});
  STD_TORCH_CHECK(uniform.dim() == 1, "gfrnn: uniform must have 1 dimension, got ", uniform.dim());
  expect(uniform, "uniform", ScalarType::Double, {uniform.size(0)});
  STD_TORCH_CHECK(temperature >= 0 && top_k >= 0 && top_p >= 0 && top_p <= 1, "gfrnn: bad sampling options");
  const Tensor draws = torch::stable::contiguous(uniform);
  Tensor bytes = torch::stable::contiguous(packed);
  if (reinterpret_cast<uintptr_t>(bytes.const_data_ptr()) % 64) bytes = torch::stable::clone(bytes);  // a slice, say
  Tensor new_logits = torch::stable::clone(torch::stable::contiguous(logits));
  Tensor symbols = torch::stable::new_empty(uniform, {uniform.size(0)}, ScalarType::Long);
  gfrnn::Generate& g = w.g;
  g.packed = const_cast<char*>(read<char>(bytes));
  // A thread pays when its share of the weights is large beside what meeting the others costs.
  g.threads = std::max<int64_t>(1, std::min<int64_t>(torch::stable::get_num_threads(), packed.size(0) >> 18));
  g.steps = uniform.size(0);
  g.uniform = read<double>(draws);
  g.temperature = temperature;
  g.top_k = top_k;
  g.top_p = top_p;
  g.h = write<float>(w.arguments.h0);
  g.c = w.arguments.c0 ? write<float>(*w.arguments.c0) : nullptr;
  g.logits = write<float>(new_logits);
  g.symbols = write<int64_t>(symbols);
  kernels().generate(g, team());
  const std::vector<int64_t> state = {s.L, 1, s.H};
  return {symbols, new_logits, torch::stable::reshape(w.arguments.h0, state),
          w.arguments.c0 ? torch::stable::reshape(*w.arguments.c0, state) : fresh(h, {0})};
}

}  // namespace
