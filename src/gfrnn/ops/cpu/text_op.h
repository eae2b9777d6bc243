// The operators that write texts: the checks and allocation around generate.h.
#pragma once
#include <algorithm>

#include "arguments.h"
#include "machine.h"

namespace {

// Weights are packed once into an opaque tensor of bytes, then characters of every text are drawn in pieces.
struct Writer {
  Arguments<float> arguments;
  Tensor head;
  Optional head_bias;
  gfrnn::Generate g = {};

  Writer(const Tensor& h, const Optional& c, const std::vector<Tensor>& weights, const Tensor& head_,
         const Optional& bias, int64_t unit, int64_t wiring, bool own, bool input_skip, double epsilon, bool half)
      : arguments(torch::stable::new_zeros(h, {1, h.dim() == 3 ? h.size(1) : 1}, ScalarType::Long), h, c, weights,
                  std::nullopt, std::nullopt, unit, wiring, head_.size(0), own, input_skip, epsilon, false),
        head(torch::stable::contiguous(head_)) {
    const Shape& s = arguments.shape;
    STD_TORCH_CHECK(s.B > 0, "gfrnn: no text to write");
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
                     int64_t wiring, bool own, bool input_skip, double epsilon, bool half) {
  Writer w(h, c, weights, head, head_bias, unit, wiring, own, input_skip, epsilon, half);
  Tensor packed = torch::stable::new_empty(h, {kernels().generate_packed_bytes(w.g)}, ScalarType::Byte);
  w.g.packed = static_cast<char*>(packed.mutable_data_ptr());
  kernels().generate_pack(w.g);
  return packed;
}

std::tuple<Tensor, Tensor, Tensor, Tensor> generate(Tensor packed, Tensor logits, Tensor h, Optional c,
                                                    std::vector<Tensor> weights, Tensor head, Optional head_bias,
                                                    Tensor uniform, double temperature, int64_t top_k, double top_p,
                                                    int64_t unit, int64_t wiring, bool own, bool input_skip, double epsilon, bool half) {
  Writer w(h, c, weights, head, head_bias, unit, wiring, own, input_skip, epsilon, half);
  const Shape& s = w.g.shape;
  expect(packed, "packed", ScalarType::Byte, {kernels().generate_packed_bytes(w.g)});
  expect(logits, "logits", ScalarType::Float, {s.B, w.g.V});
  STD_TORCH_CHECK(uniform.dim() == 2, "gfrnn: uniform must have 2 dimensions, got ", uniform.dim());
  expect(uniform, "uniform", ScalarType::Double, {s.B, uniform.size(1)});
  STD_TORCH_CHECK(temperature >= 0 && top_k >= 0 && top_p >= 0 && top_p <= 1, "gfrnn: bad sampling options");
  const Tensor draws = torch::stable::contiguous(uniform);
  Tensor bytes = torch::stable::contiguous(packed);
  if (reinterpret_cast<uintptr_t>(bytes.const_data_ptr()) % 64) bytes = torch::stable::clone(bytes);  // a slice, say
  Tensor new_logits = torch::stable::clone(torch::stable::contiguous(logits));
  Tensor symbols = torch::stable::new_empty(uniform, {s.B, uniform.size(1)}, ScalarType::Long);
  gfrnn::Generate& g = w.g;
  g.packed = const_cast<char*>(read<char>(bytes));
  // A thread pays when its share of the weights is large beside what meeting the others costs, or has texts of its own.
  const int64_t worth = s.B > 1 ? s.B : packed.size(0) >> 18;
  g.threads = std::max<int64_t>(1, std::min<int64_t>(torch::stable::get_num_threads(), worth));
  g.steps = uniform.size(1);
  g.uniform = read<double>(draws);
  g.temperature = temperature;
  g.top_k = top_k;
  g.top_p = top_p;
  g.h = write<float>(w.arguments.h0);
  g.c = w.arguments.c0 ? write<float>(*w.arguments.c0) : nullptr;
  g.logits = write<float>(new_logits);
  g.symbols = write<int64_t>(symbols);
  kernels().generate(g, team());
  auto layers_first = [&](const Tensor& rows) {
    Tensor result = fresh(h, {s.L, s.B, s.H});
    exchange<float>(read<float>(rows), write<float>(result), s.B, s.L, s.H);
    return result;
  };
  return {symbols, new_logits, layers_first(w.arguments.h0),
          w.arguments.c0 ? layers_first(*w.arguments.c0) : fresh(h, {0})};
}

}  // namespace
