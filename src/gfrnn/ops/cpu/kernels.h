// What op.cpp and the kernels agree on. The kernels know nothing of torch: plain pointers, and a way to run in parallel.
// T time, B batch, L layers, H units, I input width. F is float or double.
#pragma once
#include <cstdint>

// Inlined for certain: else the linker might share the copy of one instruction set with others (README.md).
#define GFRNN_FACT __attribute__((always_inline))

namespace gfrnn {

enum Unit : int64_t { TANH = 0, GRU = 1, LSTM = 2, BOUNDED_LSTM = 3 };
enum Wiring : int64_t { STACKED = 0, FEEDBACK = 1, GATED = 2 };

// In the order of the numbers above. Python asks for these and holds them against the records of equations.py.
struct UnitFacts {
  const char* name;
  int64_t gates, candidate;  // how many, in the order of the state_dict, and which of them is the candidate
  bool cell, keeps_q;        // q: the gated sum, which a gate multiplies before it goes to the candidate
};
constexpr UnitFacts UNITS[] = {{"tanh", 1, 0, false, false},
                               {"gru", 3, 2, false, true},
                               {"lstm", 4, 2, true, false},
                               {"bounded-lstm", 3, 1, true, false}};
constexpr const char* WIRINGS[] = {"stacked", "feedback", "gated"};
constexpr int64_t UNIT_COUNT = sizeof(UNITS) / sizeof(*UNITS), WIRING_COUNT = sizeof(WIRINGS) / sizeof(*WIRINGS);

struct Shape {
  int64_t unit, wiring;
  int64_t T, B, L, H, I;
  bool own;         // unit-wise gates see only their own layer (meaningless when stacked, or tanh)
  bool input_skip;  // x_t feeds every layer
  bool indices;     // x holds indices
  double epsilon;   // of the normalisation; 0: nothing is normalised

  GFRNN_FACT int64_t G() const { return UNITS[unit].gates; }
  GFRNN_FACT bool cell() const { return UNITS[unit].cell; }
  GFRNN_FACT int64_t n() const { return wiring == GATED ? L : 0; }  // global reset gates of a layer
  GFRNN_FACT bool apart() const { return own && wiring != STACKED && unit != TANH; }
  GFRNN_FACT bool sees_x(int64_t j) const { return j == 0 || input_skip; }
  GFRNN_FACT bool looks_up(int64_t j) const { return indices && sees_x(j); }
  GFRNN_FACT int64_t entries(int64_t j) const { return looks_up(j) ? I : 1; }  // rows to start from: one per index, or the bias
  GFRNN_FACT int64_t x_width(int64_t j) const { return sees_x(j) ? I : 0; }
  GFRNN_FACT int64_t in_width(int64_t j) const { return x_width(j) + (j > 0 ? H : 0); }  // I_j
  GFRNN_FACT int64_t S() const { return wiring == STACKED ? H : L * H; }                 // what the candidate hears

  // One row of pre-activations, activations or their gradients of one layer:
  // [candidate H | unit-wise gates (G-1)H | global reset gates n | q H, where it is kept: the gated sum before r multiplies it]
  // and, with normalisation, [1 / rms(a) G], while candidate and unit-wise gates are a / rms(a) and not yet activations
  GFRNN_FACT int64_t units_at() const { return H; }
  GFRNN_FACT int64_t global_at() const { return G() * H; }
  GFRNN_FACT int64_t q_at() const { return G() * H + n(); }
  GFRNN_FACT int64_t in_columns() const { return G() * H + n(); }  // those that W feeds
  GFRNN_FACT int64_t q_end() const { return q_at() + (UNITS[unit].keeps_q ? H : 0); }
  GFRNN_FACT bool normed() const { return epsilon > 0; }
  GFRNN_FACT int64_t inverse_at() const { return q_end(); }
  GFRNN_FACT int64_t P() const { return q_end() + (normed() ? G() : 0); }
  GFRNN_FACT int64_t recurrent_at() const { return UNITS[unit].keeps_q ? q_at() : 0; }  // where the gated sum goes
};

// One layer's parameters in the layout of the state_dict; gradients have the same.
template <class F>
struct Layer {
  F *W, *U, *U_candidate, *b, *w_g, *u_g, *b_g, *gain;  // null where the layer has none
};

template <class F>
struct Forward {
  Shape shape;
  const F* x;            // (T, B, I), or
  const int64_t* index;  // (T, B)
  const F* h0;           // (B, L*H)
  const F* c0;           // (B, L*H), where there are cells
  const Layer<const F>* layers;
  const int64_t* active;  // (T,) rows still running at t: a prefix, since rows are sorted by falling length
  const F* masks;         // (T, B, (L-1)*H) or null
  F* h;                   // (T, B, L*H), zero beyond a row's end
  F* c;                   // (T, B, L*H), where there are cells
  F* saved;               // (T, B, L*P) activations; null: not kept
};

template <class F>
struct Backward {
  Forward<F> forward;
  const F* dh;      // (T, B, L*H) or null
  const F* dh_n;    // (B, L*H) or null
  const F* dc_n;    // (B, L*H) or null
  const F* dgates;  // (T, B, L, L) or null
  const Layer<F>* gradients;  // zero on entry; members null where no gradient is wanted
  F* dx;                      // (T, B, I), zero on entry, or null
  F* dh0;                     // (B, L*H)
  F* dc0;                     // (B, L*H), where there are cells
};

// parallel(n, body): calls body(i) once for each i < n, in any order, on as many threads as there are. What a body throws
// is thrown to the caller after all have ended.
struct Parallel {
  int64_t threads;
  void (*run)(int64_t n, void (*body)(void* context, int64_t i), void* context);
  template <class Body>
  void operator()(int64_t n, const Body& body) const {
    run(n, [](void* context, int64_t i) { (*static_cast<const Body*>(context))(i); }, const_cast<Body*>(&body));
  }
};

// Texts, shape.B of them, see generate.h.
struct Generate {
  Shape shape;
  const Layer<const float>* layers;  // for packing
  const float *head, *head_bias;     // (V, head_width), (V,) or null
  int64_t V, head_width;             // head_width: L*H, or H for the last layer only
  bool half;                         // matrices stored in 16 bits
  char* packed;                      // generate_packed_bytes(), aligned to 64
  int64_t threads, steps;
  const double* uniform;  // (B, steps)
  double temperature, top_p;  // top_p 0: none
  int64_t top_k;              // 0: none
  float *h, *c, *logits;      // (B, L*H), (B, L*H) or null, (B, V): in and out
  int64_t* symbols;           // (B, steps)
};

// team(n, body): calls body(i) for each i < n at the same time, each on a thread of its own. They wait for each other, so
// none may fail: body allocates nothing.
using Team = Parallel;
void yield_thread();  // in machine.h

// c (M, N) = a (M, K) b (K, N) + bias, see product.h. Matrices lie row by row, or column by column.
struct Product {
  const float *a, *b, *bias;  // bias: (N,) or null
  float* c;
  int64_t M, N, K;
  bool a_columns, b_columns;
};

// The cost of a softmax, see softmax.h.
template <class F>
struct Softmax {
  F* logits;               // (N, V): in; out, if kept, p - onehot(target)
  const int64_t* targets;  // (N,)
  F* nats;                 // (N,)
  int64_t N, V;
  bool keep;
};

template <class F>
struct SoftmaxBackward {
  const F *difference, *d_nats;  // (N, V), (N,)
  F *d_logits, *d_bias;          // (N, V), (V,)
  int64_t N, V;
  bool rounded;
};

// What rounds the factors of products, see products.h.
struct Rounded {
  const char* isa;
  void (*forward)(const Forward<float>&, const Parallel&);
  void (*backward)(const Backward<float>&, const Parallel&);
  void (*product)(const Product&, const Parallel&);
};

struct Kernels {
  Rounded rounded;
  void (*forward_float)(const Forward<float>&, const Parallel&);
  void (*forward_double)(const Forward<double>&, const Parallel&);
  void (*backward_float)(const Backward<float>&, const Parallel&);
  void (*backward_double)(const Backward<double>&, const Parallel&);
  void (*softmax)(const Softmax<float>&, const Parallel&);
  void (*softmax_backward)(const SoftmaxBackward<float>&, const Parallel&);
  int64_t (*generate_packed_bytes)(const Generate&);
  void (*generate_pack)(const Generate&);
  void (*generate)(const Generate&, const Team&);
};

extern const Kernels kernels_generic, kernels_avx2, kernels_avx512;
extern const Rounded rounded_avx512_bf16, rounded_amx_bf16;  // everything else is avx512's

}  // namespace gfrnn
