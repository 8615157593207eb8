// The two small products of attention, in units of 32 bits: one fp32, or two neighbouring bf16.
//
// Every element of a product is one chain of multiply-adds along the depth. Its bits therefore do not depend
// on how many queries are computed beside it, nor on which of the shapes below computes it.
#pragma once

#include "lanes.h"

namespace branchwise {

struct FloatUnit {
  static constexpr int kValues = 1;
  static constexpr uint32_t kMask = 0xFFFFFFFFu;  // of the first value
  static Floats dot(Floats sum, Bits right, uint32_t left) {
    return multiply_add(as_floats(right), as_floats(Bits{} + left), sum);
  }
  template <class Value>
  static Bits read(const Value* from) {
    return as_bits(load(from));
  }
  static void put_weights(uint32_t* to, int lane, Floats weights) {
    store(reinterpret_cast<float*>(to) + lane, weights);
  }
};

struct PairUnit {
  static constexpr int kValues = 2;
  static constexpr uint32_t kMask = 0xFFFFu;
  static Floats dot(Floats sum, Bits right, uint32_t left) {
#if defined(__AVX512BF16__)
    __m512i spread_left = _mm512_set1_epi32(static_cast<int>(left));
    return (Floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)right, (__m512bh)spread_left);
#else
    Bits spread_left = Bits{} + left;
    sum = multiply_add(as_floats(right & 0xFFFF0000u), as_floats(spread_left & 0xFFFF0000u), sum);
    return multiply_add(as_floats(right << 16), as_floats(spread_left << 16), sum);
#endif
  }
  static Bits read(const Bfloat* from) { return load(reinterpret_cast<const uint32_t*>(from)); }
  static void put_weights(uint32_t* to, int lane, Floats weights) {
    store(reinterpret_cast<Bfloat*>(to) + lane, weights);
  }
};

// sums[q][v] += left[q][d] * right[v][d] over the depth; each `right[v]` has `stride` units from one d to the
// next.
template <class Unit, int kQueries, int kVectors>
inline void accumulate(
    const uint32_t* left, int64_t left_stride, const uint32_t* const (&right)[kVectors], int64_t stride, int depth,
    Floats (&sums)[kQueries][kVectors]) {
  for (int d = 0; d < depth; d++) {
    Bits lanes[kVectors];
    for (int v = 0; v < kVectors; v++) lanes[v] = load(right[v] + d * stride);
    for (int q = 0; q < kQueries; q++)
      for (int v = 0; v < kVectors; v++)
        sums[q][v] = Unit::dot(sums[q][v], lanes[v], left[q * left_stride + d]);
  }
}

}  // namespace branchwise
