// What every operator is given: checked, made contiguous, and laid out as kernels.h wants it.
#pragma once
#include <tuple>

#include "kernels.h"
#include "tensors.h"

namespace {

using gfrnn::Shape;

// The arguments common to both directions, checked and made contiguous.
template <class F>
struct Arguments {
  Shape shape;
  Tensor x, h0;  // h0, c0 as (B, L*H)
  Optional c0, masks;
  std::vector<Tensor> weights;
  std::vector<gfrnn::Layer<const F>> layers;
  std::vector<int64_t> active;
  bool bfloat16;  // products.h

  Arguments(const Tensor& x_, const Tensor& h0_, const Optional& c0_, const std::vector<Tensor>& weights_,
            const Optional& lengths, const Optional& masks_, int64_t unit, int64_t wiring, int64_t input_size, bool own,
            bool input_skip, double epsilon, bool bfloat16_)
      : x(x_), h0(h0_), bfloat16(bfloat16_) {
    STD_TORCH_CHECK(!bfloat16 || sizeof(F) == 4, "gfrnn: bfloat16 products are for float32");
    STD_TORCH_CHECK(unit >= 0 && unit < gfrnn::UNIT_COUNT, "gfrnn: unit must be in 0..", gfrnn::UNIT_COUNT - 1, ", got ", unit);
    STD_TORCH_CHECK(wiring >= 0 && wiring < gfrnn::WIRING_COUNT, "gfrnn: wiring must be in 0..", gfrnn::WIRING_COUNT - 1, ", got ", wiring);
    STD_TORCH_CHECK(epsilon >= 0, "gfrnn: epsilon must not be negative, got ", epsilon);
    STD_TORCH_CHECK(input_size > 0, "gfrnn: input_size must be positive, got ", input_size);
    STD_TORCH_CHECK(h0_.dim() == 3, "gfrnn: h0 must have 3 dimensions, got ", h0_.dim());
    const bool indices = x_.scalar_type() == ScalarType::Long;
    STD_TORCH_CHECK(x_.dim() == (indices ? 2 : 3), "gfrnn: x must have ", indices ? 2 : 3, " dimensions, got ", x_.dim());
    shape = {unit, wiring, x_.size(0), x_.size(1), h0_.size(0), h0_.size(2), input_size, own, input_skip, indices,
             epsilon};
    const auto [T, B, L, H] = std::tuple(shape.T, shape.B, shape.L, shape.H);
    STD_TORCH_CHECK(T > 0 && L > 0 && H > 0, "gfrnn: T, L and H must be positive, got ", T, ", ", L, " and ", H);
    if (indices)
      expect(x_, "x", ScalarType::Long, {T, B});
    else
      expect(x_, "x", type_of<F>(), {T, B, input_size});
    x = torch::stable::contiguous(x_);
    take_state(h0_, "h0", h0);
    STD_TORCH_CHECK(c0_.has_value() == shape.cell(), "gfrnn: c0 goes with a unit that has a cell, and only with it");
    if (c0_) take_state(*c0_, "c0", c0.emplace(*c0_));
    if (masks_) {
      expect(*masks_, "dropout_masks", type_of<F>(), {T, B, L - 1, H});
      masks = torch::stable::contiguous(*masks_);
    }
    take_weights(weights_);
    take_lengths(lengths);
    if (indices) check_indices();
  }

  void take_state(const Tensor& given, const char* name, Tensor& kept) {
    expect(given, name, type_of<F>(), {shape.L, shape.B, shape.H});
    const Tensor source = torch::stable::contiguous(given);
    kept = fresh(given, {shape.B, shape.L * shape.H});
    exchange<F>(read<F>(source), write<F>(kept), shape.L, shape.B, shape.H);
  }

  void take_weights(const std::vector<Tensor>& given) {
    const Shape& s = shape;
    const int64_t gated = s.wiring == gfrnn::GATED, plain = 2 + s.apart() + 2 * gated + s.normed();
    const int64_t biased = plain + 1 + gated;
    const int64_t count = static_cast<int64_t>(given.size());
    STD_TORCH_CHECK(count == plain * s.L || count == biased * s.L, "gfrnn: expected ", plain * s.L, " or ", biased * s.L,
                    " weights, got ", count);
    const bool bias = count == biased * s.L;
    weights.reserve(given.size());
    auto next = given.begin();
    auto take = [&](const char* name, const std::vector<int64_t>& sizes) {
      expect(*next, name, type_of<F>(), sizes);
      weights.push_back(torch::stable::contiguous(*next++));
      return read<F>(weights.back());
    };
    const int64_t G = s.G(), H = s.H, all = s.L * H;
    for (int64_t j = 0; j < s.L; j++) {
      gfrnn::Layer<const F> w = {};
      w.W = take("weight_ih", {G * H, s.in_width(j)});
      w.U = s.apart() ? take("weight_hh", {(G - 1) * H, H}) : take("weight_hh", {G * H, s.S()});
      if (s.apart()) w.U_candidate = take("weight_fb", {H, all});
      if (bias) w.b = take("bias", {G * H});
      if (gated) {
        w.w_g = take("weight_ig", {s.L, s.in_width(j)});
        w.u_g = take("weight_hg", {s.L, all});
        if (bias) w.b_g = take("bias_g", {s.L});
      }
      if (s.normed()) w.gain = take("gain", {G * H});
      layers.push_back(w);
    }
  }

  void take_lengths(const Optional& given) {
    active.assign(shape.T, shape.B);
    if (!given) return;
    expect(*given, "lengths", ScalarType::Long, {shape.B});
    const Tensor lengths = torch::stable::contiguous(*given);
    const int64_t* length = read<int64_t>(lengths);
    for (int64_t b = 0; b < shape.B; b++) {
      STD_TORCH_CHECK(length[b] >= 1 && length[b] <= shape.T, "gfrnn: lengths must be in 1..", shape.T, ", got ", length[b]);
      STD_TORCH_CHECK(b == 0 || length[b] <= length[b - 1], "gfrnn: rows must be sorted by falling length");
    }
    for (int64_t t = 0; t < shape.T; t++) {
      active[t] = 0;
      while (active[t] < shape.B && length[active[t]] > t) active[t]++;
    }
  }

  void check_indices() const {
    const int64_t* index = read<int64_t>(x);
    for (int64_t t = 0; t < shape.T; t++)
      for (int64_t b = 0; b < active[t]; b++) {
        const int64_t i = index[t * shape.B + b];
        STD_TORCH_CHECK(i >= 0 && i < shape.I, "gfrnn: index ", i, " is out of range for input_size ", shape.I);
      }
  }

  gfrnn::Forward<F> forward(const Tensor& h, const Tensor& c, const Tensor& saved, bool keep) const {
    gfrnn::Forward<F> f = {};
    f.shape = shape;
    (shape.indices ? reinterpret_cast<const void*&>(f.index) : reinterpret_cast<const void*&>(f.x)) = x.const_data_ptr();
    f.h0 = read<F>(h0);
    f.c0 = c0 ? read<F>(*c0) : nullptr;
    f.layers = layers.data();
    f.active = active.data();
    f.masks = masks ? read<F>(*masks) : nullptr;
    f.h = const_cast<F*>(read<F>(h));
    f.c = c0 ? const_cast<F*>(read<F>(c)) : nullptr;
    f.saved = keep ? const_cast<F*>(read<F>(saved)) : nullptr;
    return f;
  }
};

}  // namespace
