// The operators torch sees: allocation, and the call of a kernel. The checks are in arguments.h, the work in kernels.cpp.
// Stable ABI only (torch/csrc/stable), so that one binary serves many torch versions. Schemas, fakes and autograd are in
// __init__.py; its docstring describes the arguments.
#include "arguments.h"
#include "machine.h"
#include "product_op.h"
#include "softmax_op.h"
#include "text_op.h"

namespace {

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
  const bool cell = s.cell(), gates_wanted = return_gates && s.wiring == gfrnn::GATED;
  const int64_t LP = s.L * s.P();
  Tensor h = fresh_large(a.h0, {s.T, s.B, s.L * s.H});
  Tensor c = cell ? fresh_large(a.h0, {s.T, s.B, s.L * s.H}) : fresh(a.h0, {0});
  Tensor saved = keep || gates_wanted ? fresh_large(a.h0, {s.T, s.B, LP}) : fresh(a.h0, {0});
  for (int64_t t = 0; t < s.T; t++)
    if (a.active[t] < s.B)
      std::memset(write<F>(h) + (t * s.B + a.active[t]) * s.L * s.H, 0, (s.B - a.active[t]) * s.L * s.H * sizeof(F));
  const gfrnn::Forward<F> f = a.forward(h, c, saved, keep || gates_wanted);
  if constexpr (sizeof(F) == 4)
    (a.bfloat16 ? kernels().rounded.forward : kernels().forward_float)(f, parallel());
  else
    kernels().forward_double(f, parallel());
  Tensor gates = gates_wanted ? fresh(a.h0, {s.T, s.B, s.L, s.L}, true) : fresh(a.h0, {0});
  if (gates_wanted)
    for (int64_t t = 0; t < s.T; t++)
      for (int64_t b = 0; b < a.active[t]; b++)
        for (int64_t j = 0; j < s.L; j++)
          std::memcpy(write<F>(gates) + ((t * s.B + b) * s.L + j) * s.L,
                      f.saved + (t * s.B + b) * LP + j * s.P() + s.global_at(), s.L * sizeof(F));
  return {h, last_step(a, h), cell ? last_step(a, c) : fresh(a.h0, {0}), gates, c, keep ? saved : fresh(a.h0, {0})};
}

ForwardResult scan_forward(Tensor x, Tensor h0, Optional c0, std::vector<Tensor> weights, Optional lengths,
                           Optional masks, int64_t unit, int64_t wiring, int64_t input_size, bool own, bool input_skip,
                           double epsilon, bool bfloat16, bool keep, bool return_gates) {
  auto run = [&](auto zero) {
    using F = decltype(zero);
    const Arguments<F> a(x, h0, c0, weights, lengths, masks, unit, wiring, input_size, own, input_skip,
                         epsilon, bfloat16);
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
  const bool cell = s.cell();
  expect(h_, "h", type_of<F>(), {s.T, s.B, s.L * s.H});
  if (cell) expect(c_, "c", type_of<F>(), {s.T, s.B, s.L * s.H});
  expect(saved_, "saved", type_of<F>(), {s.T, s.B, s.L * s.P()});
  const Tensor h = torch::stable::contiguous(h_), c = torch::stable::contiguous(c_),
               saved = torch::stable::contiguous(saved_);
  Optional dh, dgates;
  if (dh_) expect(*dh_, "dh", type_of<F>(), {s.T, s.B, s.L * s.H}), dh = torch::stable::contiguous(*dh_);
  if (dgates_ && s.wiring == gfrnn::GATED)
    expect(*dgates_, "dgates", type_of<F>(), {s.T, s.B, s.L, s.L}), dgates = torch::stable::contiguous(*dgates_);
  const Optional dh_n = rows_first(a, dh_n_, "dh_n"), dc_n = cell ? rows_first(a, dc_n_, "dc_n") : std::nullopt;

  std::vector<Tensor> gradients;  // dx, dh0, dc0, then one per weight
  gradients.push_back(need_dx && !s.indices ? fresh(a.h0, {s.T, s.B, s.I}, true) : fresh(a.h0, {0}));
  gradients.push_back(fresh(a.h0, {s.L, s.B, s.H}));
  gradients.push_back(cell ? fresh(a.h0, {s.L, s.B, s.H}) : fresh(a.h0, {0}));
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
    d.gain = zero_like(w.gain);
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
  b.dc0 = cell ? write<F>(dc0) : nullptr;
  if constexpr (sizeof(F) == 4)
    (a.bfloat16 ? kernels().rounded.backward : kernels().backward_float)(b, parallel());
  else
    kernels().backward_double(b, parallel());
  exchange<F>(read<F>(dh0), write<F>(gradients[1]), s.B, s.L, s.H);
  if (cell) exchange<F>(read<F>(dc0), write<F>(gradients[2]), s.B, s.L, s.H);
  return gradients;
}

std::vector<Tensor> scan_backward(Optional dh, Optional dh_n, Optional dc_n, Optional dgates, Tensor x, Tensor h0,
                                  Optional c0, std::vector<Tensor> weights, Optional lengths, Optional masks, Tensor h,
                                  Tensor c, Tensor saved, int64_t unit, int64_t wiring, int64_t input_size, bool own,
                                  bool input_skip, double epsilon, bool bfloat16, bool need_dx) {
  auto run = [&](auto zero) {
    using F = decltype(zero);
    const Arguments<F> a(x, h0, c0, weights, lengths, masks, unit, wiring, input_size, own, input_skip,
                         epsilon, bfloat16);
    return backward_as<F>(a, dh, dh_n, dc_n, dgates, h, c, saved, need_dx);
  };
  return h0.scalar_type() == ScalarType::Double ? run(0.0) : run(0.0f);
}

std::string isa() { return kernels().rounded.isa; }

// One line per unit: name, gates, candidate, has a cell, keeps q.
std::string units() {
  std::string lines;
  for (const gfrnn::UnitFacts& u : gfrnn::UNITS)
    lines += std::string(u.name) + " " + std::to_string(u.gates) + " " + std::to_string(u.candidate) +
             (u.cell ? " 1" : " 0") + (u.keeps_q ? " 1\n" : " 0\n");
  return lines;
}

std::string wirings() {
  std::string lines;
  for (const char* name : gfrnn::WIRINGS) lines += std::string(name) + "\n";
  return lines;
}

STABLE_TORCH_LIBRARY(gfrnn, m) {
  m.def(
      "scan_forward(Tensor x, Tensor h0, Tensor? c0, Tensor[] weights, Tensor? lengths, Tensor? masks, int unit, "
      "int wiring, int input_size, bool own, bool input_skip, float epsilon, bool bfloat16, bool keep, "
      "bool return_gates) "
      "-> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)");
  m.def(
      "scan_backward(Tensor? dh, Tensor? dh_n, Tensor? dc_n, Tensor? dgates, Tensor x, Tensor h0, Tensor? c0, "
      "Tensor[] weights, Tensor? lengths, Tensor? masks, Tensor h, Tensor c, Tensor saved, int unit, int wiring, "
      "int input_size, bool own, bool input_skip, float epsilon, bool bfloat16, bool need_dx) -> Tensor[]");
  m.def(
      "generate_pack(Tensor h, Tensor? c, Tensor[] weights, Tensor head, Tensor? head_bias, int unit, int wiring, "
      "bool own, bool input_skip, float epsilon, bool half) -> Tensor");
  m.def(
      "generate(Tensor packed, Tensor logits, Tensor h, Tensor? c, Tensor[] weights, Tensor head, Tensor? head_bias, "
      "Tensor uniform, float temperature, int top_k, float top_p, int unit, int wiring, bool own, bool input_skip, "
      "float epsilon, bool half) -> (Tensor, Tensor, Tensor, Tensor)");
  m.def("rounded_product(Tensor a, Tensor b, Tensor? bias) -> Tensor");
  m.def("softmax_nats_(Tensor(a!) logits, Tensor targets, bool keep) -> Tensor");
  m.def("softmax_backward(Tensor difference, Tensor d_nats, bool rounded) -> (Tensor, Tensor)");
  m.def("isa() -> str");
  m.def("units() -> str");
  m.def("wirings() -> str");
}

STABLE_TORCH_LIBRARY_IMPL(gfrnn, CPU, m) {
  m.impl("scan_forward", TORCH_BOX(&scan_forward));
  m.impl("scan_backward", TORCH_BOX(&scan_backward));
  m.impl("generate_pack", TORCH_BOX(&generate_pack));
  m.impl("generate", TORCH_BOX(&generate));
  m.impl("rounded_product", TORCH_BOX(&rounded_product));
  m.impl("softmax_nats_", TORCH_BOX(&softmax_nats_));
  m.impl("softmax_backward", TORCH_BOX(&softmax_backward));
}

STABLE_TORCH_LIBRARY_IMPL(gfrnn, CompositeExplicitAutograd, m) {
  m.impl("isa", TORCH_BOX(&isa));
  m.impl("units", TORCH_BOX(&units));
  m.impl("wirings", TORCH_BOX(&wirings));
}

}  // namespace
