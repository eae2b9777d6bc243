// The operators torch sees: checks, allocation, and the choice of instruction set. The work is in kernels.cpp.
// Stable ABI only (torch/csrc/stable), so that one binary serves many torch versions. Schemas, fakes and autograd are in
// __init__.py; its docstring describes the arguments.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>
#include <torch/headeronly/util/Exception.h>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "kernels.h"

namespace gfrnn {
void yield_thread() { std::this_thread::yield(); }
}  // namespace gfrnn

namespace {

using gfrnn::Shape;
using torch::headeronly::ScalarType;
using torch::stable::Tensor;
using Optional = std::optional<Tensor>;

const gfrnn::Kernels& kernels() {
  static const gfrnn::Kernels& chosen = []() -> const gfrnn::Kernels& {
    const char* limit = std::getenv("GFRNN_ISA");  // for tests: "generic" or "avx2" on a better CPU
    [[maybe_unused]] auto allowed = [&](const char* isa) {
      return !limit || std::strcmp(limit, isa) == 0 || std::strcmp(limit, "avx512") == 0;
    };
#ifdef GFRNN_HAS_AVX512
    if (allowed("avx512") && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
      return gfrnn::kernels_avx512;
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

gfrnn::Parallel parallel() {
  return {torch::stable::get_num_threads(), [](int64_t n, void (*body)(void*, int64_t), void* context) {
            torch::stable::parallel_for(0, n, 1, [&](int64_t begin, int64_t end) {
              for (int64_t i = begin; i < end; i++) body(context, i);
            });
          }};
}

// Threads that run at the same time, whatever torch's pool is doing: they wait for each other.
gfrnn::Team team() {
  return {1, [](int64_t n, void (*body)(void*, int64_t), void* context) {
            std::vector<std::thread> others;
            for (int64_t i = 1; i < n; i++) others.emplace_back(body, context, i);
            body(context, 0);
            for (auto& other : others) other.join();
          }};
}

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

// The arguments common to both directions, checked and made contiguous.
template <class F>
struct Arguments {
  Shape shape;
  Tensor x, h0;  // h0, c0 as (B, L*H)
  Optional c0, masks;
  std::vector<Tensor> weights;
  std::vector<gfrnn::Layer<const F>> layers;
  std::vector<int64_t> active;

  Arguments(const Tensor& x_, const Tensor& h0_, const Optional& c0_, const std::vector<Tensor>& weights_,
            const Optional& lengths, const Optional& masks_, int64_t unit, int64_t wiring, int64_t input_size, bool own,
            bool input_skip)
      : x(x_), h0(h0_) {
    STD_TORCH_CHECK(unit >= 0 && unit <= 2, "gfrnn: unit must be 0, 1 or 2, got ", unit);
    STD_TORCH_CHECK(wiring >= 0 && wiring <= 2, "gfrnn: wiring must be 0, 1 or 2, got ", wiring);
    STD_TORCH_CHECK(input_size > 0, "gfrnn: input_size must be positive, got ", input_size);
    STD_TORCH_CHECK(h0_.dim() == 3, "gfrnn: h0 must have 3 dimensions, got ", h0_.dim());
    const bool indices = x_.scalar_type() == ScalarType::Long;
    STD_TORCH_CHECK(x_.dim() == (indices ? 2 : 3), "gfrnn: x must have ", indices ? 2 : 3, " dimensions, got ", x_.dim());
    shape = {unit, wiring, x_.size(0), x_.size(1), h0_.size(0), h0_.size(2), input_size, own, input_skip, indices};
    const auto [T, B, L, H] = std::tuple(shape.T, shape.B, shape.L, shape.H);
    STD_TORCH_CHECK(T > 0 && L > 0 && H > 0, "gfrnn: T, L and H must be positive, got ", T, ", ", L, " and ", H);
    if (indices)
      expect(x_, "x", ScalarType::Long, {T, B});
    else
      expect(x_, "x", type_of<F>(), {T, B, input_size});
    x = torch::stable::contiguous(x_);
    take_state(h0_, "h0", h0);
    STD_TORCH_CHECK(c0_.has_value() == (unit == gfrnn::LSTM), "gfrnn: c0 goes with the LSTM, and only with it");
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
    const int64_t gated = s.wiring == gfrnn::GATED, plain = 2 + s.apart() + 2 * gated, biased = plain + 1 + gated;
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

// (T, B, L*H) at each row's last step -> (L, B, H)
template <class F>
Tensor last_step(const Arguments<F>& a, const Tensor& all) {
  const Shape& s = a.shape;
  Tensor last = fresh(a.h0, {s.L, s.B, s.H});
  for (int64_t t = 0; t < s.T; t++)
    for (int64_t b = t + 1 < s.T ? a.active[t + 1] : 0; b < a.active[t]; b++)
      for (int64_t j = 0; j < s.L; j++)
        std::memcpy(write<F>(last) + (j * s.B + b) * s.H, read<F>(all) + ((t * s.B + b) * s.L + j) * s.H, s.H * sizeof(F));
  return last;
}

using ForwardResult = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;

template <class F>
ForwardResult forward_as(const Arguments<F>& a, bool keep, bool return_gates) {
  const Shape& s = a.shape;
  const bool lstm = s.unit == gfrnn::LSTM, gates_wanted = return_gates && s.wiring == gfrnn::GATED;
  const int64_t LP = s.L * s.P();
  Tensor h = fresh_large(a.h0, {s.T, s.B, s.L * s.H});
  Tensor c = lstm ? fresh_large(a.h0, {s.T, s.B, s.L * s.H}) : fresh(a.h0, {0});
  Tensor saved = keep || gates_wanted ? fresh_large(a.h0, {s.T, s.B, LP}) : fresh(a.h0, {0});
  for (int64_t t = 0; t < s.T; t++)
    if (a.active[t] < s.B)
      std::memset(write<F>(h) + (t * s.B + a.active[t]) * s.L * s.H, 0, (s.B - a.active[t]) * s.L * s.H * sizeof(F));
  const gfrnn::Forward<F> f = a.forward(h, c, saved, keep || gates_wanted);
  if constexpr (sizeof(F) == 4)
    kernels().forward_float(f, parallel());
  else
    kernels().forward_double(f, parallel());
  Tensor gates = gates_wanted ? fresh(a.h0, {s.T, s.B, s.L, s.L}, true) : fresh(a.h0, {0});
  if (gates_wanted)
    for (int64_t t = 0; t < s.T; t++)
      for (int64_t b = 0; b < a.active[t]; b++)
        for (int64_t j = 0; j < s.L; j++)
          std::memcpy(write<F>(gates) + ((t * s.B + b) * s.L + j) * s.L,
                      f.saved + (t * s.B + b) * LP + j * s.P() + s.global_at(), s.L * sizeof(F));
  return {h, last_step(a, h), lstm ? last_step(a, c) : fresh(a.h0, {0}), gates, c, keep ? saved : fresh(a.h0, {0})};
}

ForwardResult scan_forward(Tensor x, Tensor h0, Optional c0, std::vector<Tensor> weights, Optional lengths,
                           Optional masks, int64_t unit, int64_t wiring, int64_t input_size, bool own, bool input_skip,
                           bool keep, bool return_gates) {
  auto run = [&](auto zero) {
    using F = decltype(zero);
    const Arguments<F> a(x, h0, c0, weights, lengths, masks, unit, wiring, input_size, own, input_skip);
    return forward_as<F>(a, keep, return_gates);
  };
  return h0.scalar_type() == ScalarType::Double ? run(0.0) : run(0.0f);
}

// Gradients in (B, L*H), from (L, B, H) or nothing.
template <class F>
Optional rows_first(const Arguments<F>& a, const Optional& given, const char* name) {
  if (!given) return std::nullopt;
  const Shape& s = a.shape;
  expect(*given, name, type_of<F>(), {s.L, s.B, s.H});
  const Tensor source = torch::stable::contiguous(*given);
  Tensor result = fresh(a.h0, {s.B, s.L * s.H});
  exchange<F>(read<F>(source), write<F>(result), s.L, s.B, s.H);
  return result;
}

template <class F>
std::vector<Tensor> backward_as(const Arguments<F>& a, const Optional& dh_, const Optional& dh_n_, const Optional& dc_n_,
                                const Optional& dgates_, const Tensor& h_, const Tensor& c_, const Tensor& saved_,
                                bool need_dx) {
  const Shape& s = a.shape;
  const bool lstm = s.unit == gfrnn::LSTM;
  expect(h_, "h", type_of<F>(), {s.T, s.B, s.L * s.H});
  if (lstm) expect(c_, "c", type_of<F>(), {s.T, s.B, s.L * s.H});
  expect(saved_, "saved", type_of<F>(), {s.T, s.B, s.L * s.P()});
  const Tensor h = torch::stable::contiguous(h_), c = torch::stable::contiguous(c_),
               saved = torch::stable::contiguous(saved_);
  Optional dh, dgates;
  if (dh_) expect(*dh_, "dh", type_of<F>(), {s.T, s.B, s.L * s.H}), dh = torch::stable::contiguous(*dh_);
  if (dgates_ && s.wiring == gfrnn::GATED)
    expect(*dgates_, "dgates", type_of<F>(), {s.T, s.B, s.L, s.L}), dgates = torch::stable::contiguous(*dgates_);
  const Optional dh_n = rows_first(a, dh_n_, "dh_n"), dc_n = lstm ? rows_first(a, dc_n_, "dc_n") : std::nullopt;

  std::vector<Tensor> gradients;  // dx, dh0, dc0, then one per weight
  gradients.push_back(need_dx && !s.indices ? fresh(a.h0, {s.T, s.B, s.I}, true) : fresh(a.h0, {0}));
  gradients.push_back(fresh(a.h0, {s.L, s.B, s.H}));
  gradients.push_back(lstm ? fresh(a.h0, {s.L, s.B, s.H}) : fresh(a.h0, {0}));
  std::vector<gfrnn::Layer<F>> layers;
  size_t next = 0;
  auto zero_like = [&](const F* present) -> F* {
    if (!present) return nullptr;
    const Tensor& w = a.weights[next++];
    std::vector<int64_t> sizes;
    for (int64_t d = 0; d < w.dim(); d++) sizes.push_back(w.size(d));
    gradients.push_back(fresh(w, sizes, true));
    return write<F>(gradients.back());
  };
  for (const auto& w : a.layers) {
    gfrnn::Layer<F> d = {};
    d.W = zero_like(w.W);
    d.U = zero_like(w.U);
    d.U_candidate = zero_like(w.U_candidate);
    d.b = zero_like(w.b);
    d.w_g = zero_like(w.w_g);
    d.u_g = zero_like(w.u_g);
    d.b_g = zero_like(w.b_g);
    layers.push_back(d);
  }
  Tensor dh0 = fresh(a.h0, {s.B, s.L * s.H}), dc0 = fresh(a.h0, {s.B, s.L * s.H});
  gfrnn::Backward<F> b = {};
  b.forward = a.forward(h, c, saved, true);
  b.dh = dh ? read<F>(*dh) : nullptr;
  b.dh_n = dh_n ? read<F>(*dh_n) : nullptr;
  b.dc_n = dc_n ? read<F>(*dc_n) : nullptr;
  b.dgates = dgates ? read<F>(*dgates) : nullptr;
  b.gradients = layers.data();
  b.dx = need_dx && !s.indices ? write<F>(gradients[0]) : nullptr;
  b.dh0 = write<F>(dh0);
  b.dc0 = lstm ? write<F>(dc0) : nullptr;
  if constexpr (sizeof(F) == 4)
    kernels().backward_float(b, parallel());
  else
    kernels().backward_double(b, parallel());
  exchange<F>(read<F>(dh0), write<F>(gradients[1]), s.B, s.L, s.H);
  if (lstm) exchange<F>(read<F>(dc0), write<F>(gradients[2]), s.B, s.L, s.H);
  return gradients;
}

std::vector<Tensor> scan_backward(Optional dh, Optional dh_n, Optional dc_n, Optional dgates, Tensor x, Tensor h0,
                                  Optional c0, std::vector<Tensor> weights, Optional lengths, Optional masks, Tensor h,
                                  Tensor c, Tensor saved, int64_t unit, int64_t wiring, int64_t input_size, bool own,
                                  bool input_skip, bool need_dx) {
  auto run = [&](auto zero) {
    using F = decltype(zero);
    const Arguments<F> a(x, h0, c0, weights, lengths, masks, unit, wiring, input_size, own, input_skip);
    return backward_as<F>(a, dh, dh_n, dc_n, dgates, h, c, saved, need_dx);
  };
  return h0.scalar_type() == ScalarType::Double ? run(0.0) : run(0.0f);
}

// Text for a batch of one. Weights are packed once into an opaque tensor of bytes, then characters are drawn in pieces.
struct Writer {
  Arguments<float> arguments;
  Tensor head;
  Optional head_bias;
  gfrnn::Generate g = {};

  Writer(const Tensor& h, const Optional& c, const std::vector<Tensor>& weights, const Tensor& head_,
         const Optional& bias, int64_t unit, int64_t wiring, bool own, bool input_skip, bool half)
      : arguments(torch::stable::new_zeros(h, {1, 1}, ScalarType::Long), h, c, weights, std::nullopt, std::nullopt, unit,
                  wiring, head_.size(0), own, input_skip),
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

std::string isa() { return kernels().name; }

STABLE_TORCH_LIBRARY(gfrnn, m) {
  m.def(
      "scan_forward(Tensor x, Tensor h0, Tensor? c0, Tensor[] weights, Tensor? lengths, Tensor? masks, int unit, "
      "int wiring, int input_size, bool own, bool input_skip, bool keep, bool return_gates) "
      "-> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)");
  m.def(
      "scan_backward(Tensor? dh, Tensor? dh_n, Tensor? dc_n, Tensor? dgates, Tensor x, Tensor h0, Tensor? c0, "
      "Tensor[] weights, Tensor? lengths, Tensor? masks, Tensor h, Tensor c, Tensor saved, int unit, int wiring, "
      "int input_size, bool own, bool input_skip, bool need_dx) -> Tensor[]");
  m.def(
      "generate_pack(Tensor h, Tensor? c, Tensor[] weights, Tensor head, Tensor? head_bias, int unit, int wiring, "
      "bool own, bool input_skip, bool half) -> Tensor");
  m.def(
      "generate(Tensor packed, Tensor logits, Tensor h, Tensor? c, Tensor[] weights, Tensor head, Tensor? head_bias, "
      "Tensor uniform, float temperature, int top_k, float top_p, int unit, int wiring, bool own, bool input_skip, "
      "bool half) -> (Tensor, Tensor, Tensor, Tensor)");
  m.def("isa() -> str");
}

STABLE_TORCH_LIBRARY_IMPL(gfrnn, CPU, m) {
  m.impl("scan_forward", TORCH_BOX(&scan_forward));
  m.impl("scan_backward", TORCH_BOX(&scan_backward));
  m.impl("generate_pack", TORCH_BOX(&generate_pack));
  m.impl("generate", TORCH_BOX(&generate));
}

STABLE_TORCH_LIBRARY_IMPL(gfrnn, CompositeExplicitAutograd, m) { m.impl("isa", TORCH_BOX(&isa)); }

}  // namespace
