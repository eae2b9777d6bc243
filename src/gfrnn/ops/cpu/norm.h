// Normalisation of a layer's pre-activations, one row at a time: equations.py's `settled`, and back.
// Blocks are gates in the order of our columns (the candidate is block 0). A dot marks dL/d(...).
#pragma once
#include "kernels.h"
#include "vec.h"

namespace {

using gfrnn::Shape;

// The gain and bias of a layer, in the layout of the state_dict. Without a gain nothing is normalised.
template <class F>
struct Norm {
  const F *gain, *bias;

  // Where the numbers of a block begin in the state_dict's order.
  static int64_t place(const Shape& s, int64_t block) {
    const int64_t candidate = gfrnn::UNITS[s.unit].candidate;
    return (block == 0 ? candidate : block <= candidate ? block - 1 : block) * s.H;
  }

  // a -> a / rms(a) in block `block` of a row; 1 / rms(a) is kept behind it.
  void forward(const Shape& s, F* row, int64_t block) const {
    const int64_t H = s.H;
    F* a = row + block * H;
    vec<F> squares = {};
    for_lanes<F>(H, [&](Lane<F> l) { squares += l.get(a) * l.get(a); });
    const F mean = sum<F>(squares) / H + F(s.epsilon);
    const F inverse = 1 / (sizeof(F) == 4 ? __builtin_sqrtf(mean) : __builtin_sqrt(mean));
    row[s.inverse_at() + block] = inverse;
    for_lanes<F>(H, [&](Lane<F> l) { l.put(a, l.get(a) * inverse); });
  }

  // What enters a gate's function: gain a / rms(a) + b, or a as it is.
  GFRNN_INLINE vec<F> settled(const Shape& s, const F* row, int64_t block, Lane<F> l) const {
    const vec<F> a = l.get(row + block * s.H);
    if (!gain) return a;
    const int64_t at = place(s, block);
    return bias ? a * l.get(gain + at) + l.get(bias + at) : a * l.get(gain + at);
  }

  // delta: of what is settled -> of what came. sums: (2, G*H) to which the gradients of gain and bias are added.
  void backward(const Shape& s, const F* row, F* delta, int64_t block, F* sums) const {
    const int64_t H = s.H, at = place(s, block);
    const F *n = row + block * H, inverse = row[s.inverse_at() + block];
    F *d = delta + block * H, *d_gain = sums + block * H, *d_bias = sums + (s.G() + block) * H;
    vec<F> dot = {};
    for_lanes<F>(H, [&](Lane<F> l) {
      const vec<F> d_a = l.get(d), of_gain = d_a * l.get(n);
      l.put(d_bias, l.get(d_bias) + d_a);
      l.put(d_gain, l.get(d_gain) + of_gain);
      dot += of_gain * l.get(gain + at);
    });
    const F mean = sum<F>(dot) / H;
    for_lanes<F>(H, [&](Lane<F> l) { l.put(d, inverse * (l.get(d) * l.get(gain + at) - mean * l.get(n))); });
  }
};

}  // namespace
