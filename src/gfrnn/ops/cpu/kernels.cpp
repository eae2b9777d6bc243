// Everything that is compiled once per instruction set. README.md has the derivation, the layout and the threads.
// All but the table below has internal linkage, so that no function built for one instruction set can be linked into
// another.
#include "backward.h"
#include "forward.h"
#include "product.h"
#ifndef GFRNN_ROUNDED_ONLY
#include "generate.h"
#include "softmax.h"
#endif

namespace gfrnn {
#define GFRNN_STRING_(x) #x
#define GFRNN_STRING(x) GFRNN_STRING_(x)
#define GFRNN_JOIN_(a, b) a##b
#define GFRNN_JOIN(a, b) GFRNN_JOIN_(a, b)
#ifdef GFRNN_ROUNDED_ONLY  // an instruction set that has products of rounded factors and nothing else of its own
extern const Rounded GFRNN_JOIN(rounded_, GFRNN_ISA);
const Rounded GFRNN_JOIN(rounded_, GFRNN_ISA) = {GFRNN_STRING(GFRNN_ISA), forward<Bfloat16>, backward<Bfloat16>, product<Bfloat16>};
#else
extern const Kernels GFRNN_JOIN(kernels_, GFRNN_ISA);
const Kernels GFRNN_JOIN(kernels_, GFRNN_ISA) = {{GFRNN_STRING(GFRNN_ISA), forward<Bfloat16>, backward<Bfloat16>, product<Bfloat16>},
                                                 forward<Exact<float>>, forward<Exact<double>>,
                                                 backward<Exact<float>>, backward<Exact<double>>,
                                                 softmax<float>, softmax_backward<float>,
                                                 generate_packed_bytes, generate_pack, generate};
#endif
}  // namespace gfrnn
