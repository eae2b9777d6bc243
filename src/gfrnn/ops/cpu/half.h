// Numbers stored in 16 bits.
#pragma once
#include "vec.h"

namespace {

struct Half {
  uint16_t bits;
};

// A vector of floats from memory, whatever it is stored as.
GFRNN_INLINE vec<float> fetch(const float* p) { return load<float>(p); }

GFRNN_INLINE vec<float> fetch(const Half* p) {
#if defined(__AVX512F__)
  return reinterpret_cast<vec<float>>(_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))));
#elif defined(__F16C__)
  return reinterpret_cast<vec<float>>(_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
#else
  // Exponent and mantissa moved into place are the number times 2^-112, subnormals included.
  Vec<float>::ints bits;
  for (int i = 0; i < Vec<float>::size; i++) bits[i] = p[i].bits;
  const Vec<float>::ints sign = (bits & 0x8000) << 16, rest = (bits & 0x7fff) << 13;
  const vec<float> magnitude = reinterpret_cast<vec<float>>(rest) * 5.192296858534828e33f;
  return reinterpret_cast<vec<float>>(reinterpret_cast<Vec<float>::ints>(magnitude) | sign);
#endif
}

// Packing: the number is exactly representable (the caller has rounded the weights).
GFRNN_INLINE void put(float* to, float x) { *to = x; }
GFRNN_INLINE void put(Half* to, float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  const uint32_t sign = bits >> 16 & 0x8000;
  float magnitude = (x < 0 ? -x : x) * 1.925929944387236e-34f;  // 2^-112
  std::memcpy(&bits, &magnitude, 4);
  to->bits = static_cast<uint16_t>(sign | bits >> 13);
}

}  // namespace
